#include <algorithm>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/text/byte_level.h"
#include "weft/data/text/tokenizer.h"

namespace weft {
namespace {

/// Larger than any vocabulary that is trained, small enough for a table.
constexpr int64_t kMostIds = 4'000'000;
constexpr DocumentLimits kTokenizerLimits{.max_bytes = 256u << 20, .max_depth = 64, .max_values = 20'000'000};
constexpr const char* kSupported = "Byte-level BPE tokenizers are read; docs/manual/data.md says which.";

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::string type_of(const Json& object) {
  const Json* type = member(object, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : "";
}

bool is_true(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

/// The steps of a "Sequence", or the one step itself.
std::vector<const Json*> steps_of(const Json& step, const char* list) {
  std::vector<const Json*> steps;
  if (type_of(step) != "Sequence") return {&step};
  if (const Json* parts = member(step, list); parts != nullptr && parts->is_array()) {
    for (const Json& part : *parts) steps.push_back(&part);
  }
  return steps;
}

}  // namespace

/// Reads the parts of one file; the first mistake is kept.
struct Tokenizer::Reader {
  const Document& document;
  Tokenizer tokenizer = {};
  std::optional<Error> error = std::nullopt;
  std::unordered_map<std::string, int32_t> vocabulary = {};  ///< as the file writes tokens

  void fail(std::string field, std::string problem, std::string advice = kSupported) {
    if (!error)
      error = Error{.source = document.source,
                    .field = std::move(field),
                    .problem = std::move(problem),
                    .advice = std::move(advice)};
  }

  void read_normalizer() {
    const Json* normalizer = member(document.root, "normalizer");
    if (normalizer == nullptr) return;
    for (const Json* step : steps_of(*normalizer, "normalizers")) {
      const std::string type = type_of(*step);
      if ((type != "NFC" && type != "NFKC") || tokenizer.form_) {
        return fail("normalizer", fmt::format("has the step {}; NFC or NFKC, once, or none is known", in_quotes(type)));
      }
      tokenizer.form_ = type == "NFC" ? NormalForm::kNfc : NormalForm::kNfkc;
    }
  }

  void read_split(const Json& step) {
    const Json* pattern = member(step, "pattern");
    const Json* regex = pattern != nullptr ? member(*pattern, "Regex") : nullptr;
    const Json* behavior = member(step, "behavior");
    if (regex == nullptr || !regex->is_string())
      return fail("pre_tokenizer.pattern", "is not {\"Regex\": text}, the only form that is known");
    if (behavior == nullptr || *behavior != "Isolated" || is_true(step, "invert")) {
      return fail("pre_tokenizer.behavior", "is not 'Isolated' without 'invert', the only one that is known");
    }
    Result<SplitPattern> split =
        SplitPattern::parse(regex->get_ref<const std::string&>(), document.source, "pre_tokenizer.pattern");
    if (!split) {
      if (!error) error = split.error();
      return;
    }
    tokenizer.splits_.push_back(*std::move(split));
  }

  void read_pre_tokenizer() {
    const Json* pre = member(document.root, "pre_tokenizer");
    if (pre == nullptr) return fail("pre_tokenizer", "is missing, ByteLevel is needed");
    bool is_byte_level = false;
    for (const Json* step : steps_of(*pre, "pretokenizers")) {
      const std::string type = type_of(*step);
      if (is_byte_level) return fail("pre_tokenizer", "has a step after ByteLevel, which must be the last");
      if (type == "Split") {
        read_split(*step);
      } else if (type == "ByteLevel") {
        is_byte_level = true;
        if (is_true(*step, "add_prefix_space"))
          return fail("pre_tokenizer.add_prefix_space", "is true, false is known");
        const Json* use_regex = member(*step, "use_regex");
        if (use_regex == nullptr || *use_regex != false) tokenizer.splits_.push_back(SplitPattern::of_byte_level());
      } else {
        return fail("pre_tokenizer", fmt::format("has the step {}; Split and ByteLevel are known", in_quotes(type)));
      }
    }
    if (!is_byte_level) fail("pre_tokenizer", "has no step ByteLevel");
  }

  void read_vocabulary(const Json& model) {
    const Json* vocab = member(model, "vocab");
    if (vocab == nullptr || !vocab->is_object() || vocab->empty())
      return fail("model.vocab", "is missing or empty, an object of tokens with their ids is needed");
    vocabulary.reserve(vocab->size());
    int64_t largest = -1;
    for (const auto& [token, id] : vocab->items()) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostIds) {
        return fail("model.vocab", fmt::format("gives {} the id {}, 0 to {} is allowed", in_quotes(token),
                                               describe_value(id), kMostIds - 1));
      }
      if (!is_valid_utf8(token))
        return fail("model.vocab", fmt::format("has the token {}, not UTF-8", in_quotes(token)));
      largest = std::max(largest, id.get<int64_t>());
      vocabulary.emplace(token, static_cast<int32_t>(id.get<int64_t>()));
    }
    tokenizer.bytes_.resize(static_cast<size_t>(largest) + 1);
    tokenizer.is_special_.resize(tokenizer.bytes_.size());
    tokenizer.ids_.reserve(vocabulary.size());
    for (const auto& [token, id] : vocabulary) {
      tokenizer.ids_[token] = id;
      tokenizer.bytes_[static_cast<size_t>(id)] = bytes_of_entry(token).value_or(token);
    }
  }

  /// A merge's two tokens: "a b", or ["a", "b"].
  bool parts_of(const Json& merge, std::string& first, std::string& second) const {
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) return false;
      first = text.substr(0, space);
      second = text.substr(space + 1);
      return true;
    }
    if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return false;
    first = merge[0].get<std::string>();
    second = merge[1].get<std::string>();
    return true;
  }

  void read_merges(const Json& model, std::vector<BytePairs::Merge>& merges) {
    const Json* list = member(model, "merges");
    if (list == nullptr || !list->is_array()) return fail("model.merges", "is missing, a list of pairs is needed");
    merges.reserve(list->size());
    std::string first, second;
    for (const Json& merge : *list) {
      const std::string field = fmt::format("model.merges[{}]", merges.size());
      if (!parts_of(merge, first, second)) return fail(field, "is not a pair of tokens");
      const auto a = vocabulary.find(first), b = vocabulary.find(second), both = vocabulary.find(first + second);
      if (a == vocabulary.end() || b == vocabulary.end() || both == vocabulary.end()) {
        return fail(field,
                    fmt::format("joins {} and {}, which the vocabulary does not have with what they make",
                                in_quotes(first), in_quotes(second)),
                    "Check that the file is whole.");
      }
      merges.push_back({a->second, b->second, both->second});
    }
  }

  void read_model() {
    const Json* model = member(document.root, "model");
    if (model == nullptr || !model->is_object()) return fail("model", "is missing, an object is needed");
    const std::string type = type_of(*model);
    // Files of older versions leave the type out.
    if (type != "BPE" && !(type.empty() && member(*model, "merges") != nullptr))
      return fail("model.type", fmt::format("is {}, BPE is known", in_quotes(type)));
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
      const Json* value = member(*model, key);
      if (value != nullptr && *value != "" && *value != 0.0)
        return fail(fmt::format("model.{}", key), fmt::format("is {}, null is known", describe_value(*value)));
    }
    if (is_true(*model, "byte_fallback")) return fail("model.byte_fallback", "is true, false is known");
    read_vocabulary(*model);
    if (error) return;
    std::vector<BytePairs::Merge> merges;
    read_merges(*model, merges);
    if (error) return;
    std::array<int32_t, 256> byte_ids{};
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string token;
      append_utf8(token, character_of_byte(static_cast<unsigned char>(byte)));
      const auto it = vocabulary.find(token);
      if (it == vocabulary.end()) {
        return fail("model.vocab", fmt::format("has no token for the byte 0x{:02x}", byte),
                    "Train byte-level vocabularies with the whole byte alphabet.");
      }
      byte_ids[byte] = it->second;
    }
    std::unordered_map<std::string, int32_t> whole;
    if (is_true(*model, "ignore_merges")) {
      for (const auto& [token, id] : vocabulary) {
        if (std::optional<std::string> bytes = bytes_of_entry(token)) whole.emplace(*std::move(bytes), id);
      }
    }
    tokenizer.pairs_ = BytePairs(byte_ids, merges, std::move(whole));
  }

  void read_added_tokens() {
    const Json* list = member(document.root, "added_tokens");
    if (list == nullptr) return;
    if (!list->is_array()) return fail("added_tokens", "is not a list");
    std::vector<AddedToken> plain, normalized;
    for (size_t i = 0; i < list->size(); ++i) {
      const Json& entry = (*list)[i];
      const std::string field = fmt::format("added_tokens[{}]", i);
      const Json* id = member(entry, "id");
      const Json* content = member(entry, "content");
      if (id == nullptr || !id->is_number_integer() || id->get<int64_t>() < 0 || id->get<int64_t>() >= kMostIds ||
          content == nullptr || !content->is_string() || !is_valid_utf8(content->get_ref<const std::string&>())) {
        return fail(field, "needs an id and a content");
      }
      AddedToken token{.id = id->get<int64_t>(),
                       .content = content->get<std::string>(),
                       .is_special = is_true(entry, "special"),
                       .is_normalized = is_true(entry, "normalized"),
                       .is_single_word = is_true(entry, "single_word"),
                       .takes_left = is_true(entry, "lstrip"),
                       .takes_right = is_true(entry, "rstrip")};
      const auto at = static_cast<size_t>(token.id);
      if (at >= tokenizer.bytes_.size()) {
        tokenizer.bytes_.resize(at + 1);
        tokenizer.is_special_.resize(at + 1);
      }
      tokenizer.is_special_[at] = token.is_special;
      tokenizer.ids_[token.content] = token.id;
      if (token.is_normalized && tokenizer.form_) {
        const Normalized changed = normalize(token.content, *tokenizer.form_);
        if (changed.changed) token.content = changed.text;
      }
      tokenizer.bytes_[at] = bytes_of_entry(token.content).value_or(token.content);
      (token.is_normalized ? normalized : plain).push_back(std::move(token));
    }
    tokenizer.plain_added_ = AddedTokens(std::move(plain));
    tokenizer.normalized_added_ = AddedTokens(std::move(normalized));
  }

  /// What is put around a text: "TemplateProcessing". Offsets, which other steps change, are not kept here.
  void read_ends() {
    const Json* processor = member(document.root, "post_processor");
    if (processor == nullptr) return;
    for (const Json* step : steps_of(*processor, "processors")) {
      const std::string type = type_of(*step);
      if (type == "ByteLevel") continue;
      if (type != "TemplateProcessing")
        return fail("post_processor",
                    fmt::format("has the step {}; TemplateProcessing and ByteLevel are known", in_quotes(type)));
      read_template(*step);
    }
  }

  void read_template(const Json& step) {
    const Json* single = member(step, "single");
    if (single == nullptr || !single->is_array()) return fail("post_processor.single", "is not a list");
    bool is_after = false;
    for (const Json& item : *single) {
      if (member(item, "Sequence") != nullptr) {
        is_after = true;
        continue;
      }
      const Json* special = member(item, "SpecialToken");
      const Json* name = special != nullptr ? member(*special, "id") : nullptr;
      if (name == nullptr || !name->is_string()) return fail("post_processor.single", "has an item that is not known");
      const auto id = tokenizer.ids_.find(name->get<std::string>());
      if (id == tokenizer.ids_.end()) {
        return fail("post_processor.single",
                    fmt::format("names the token {}, which the file lacks", in_quotes(name->get<std::string>())));
      }
      (is_after ? tokenizer.after_ : tokenizer.before_).push_back(id->second);
    }
  }
};

Result<Tokenizer> Tokenizer::read(const Document& document) {
  Reader reader{.document = document};
  if (!document.root.is_object()) reader.fail("", "is not an object, a tokenizer.json is needed");
  if (!reader.error) reader.read_model();
  if (!reader.error) reader.read_normalizer();
  if (!reader.error) reader.read_pre_tokenizer();
  if (!reader.error) reader.read_added_tokens();
  if (!reader.error) reader.read_ends();
  if (reader.error) return *std::move(reader.error);
  return std::move(reader.tokenizer);
}

Result<Tokenizer> Tokenizer::read_folder(const std::filesystem::path& folder) {
  WEFT_TRY(const Document document, read_document(folder / "tokenizer.json", kTokenizerLimits));
  return read(document);
}

}  // namespace weft
