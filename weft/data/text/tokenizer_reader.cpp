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
/// Texts are split once by each, so their number is what a text's time and a call's depth grow with.
constexpr size_t kMostSplits = 16;
constexpr const char* kOneEach = "A token has one text and one id: check that the file is whole and was not edited.";
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

/// A value for messages: also one that is not there.
std::string described(const Json* value) {
  return value == nullptr ? "missing" : describe_value(*value);
}

}  // namespace

/// Reads the parts of one file; the first mistake is kept.
struct Tokenizer::Reader {
  const Document& document;
  Tokenizer tokenizer = {};
  std::optional<Error> error = std::nullopt;
  std::unordered_map<std::string, int32_t> vocabulary = {};  ///< as the file writes tokens
  std::unordered_map<int64_t, AddedToken> added = {};
  std::unordered_map<int64_t, std::string_view> texts = {};  ///< of the ids of both

  void fail(std::string field, std::string problem, std::string advice = kSupported) {
    if (!error)
      error = Error{.source = document.source,
                    .field = std::move(field),
                    .problem = std::move(problem),
                    .advice = std::move(advice)};
  }

  /// true or false. `fallback` is for files that may leave it out; without one they may not.
  bool flag(const Json& object, const char* key, const std::string& field, std::optional<bool> fallback = {}) {
    const Json* value = member(object, key);
    if (value != nullptr && value->is_boolean()) return value->get<bool>();
    if (value != nullptr || !fallback)
      fail(field + "." + key, fmt::format("is {}, true or false is needed", described(value)));
    return fallback.value_or(false);
  }

  /// The steps of a "Sequence", or the one step itself.
  std::vector<const Json*> steps_of(const Json& step, const char* list, const std::string& field) {
    if (type_of(step) != "Sequence") return {&step};
    const Json* parts = member(step, list);
    std::vector<const Json*> steps;
    if (parts == nullptr || !parts->is_array()) {
      fail(field + "." + list, fmt::format("is {}, a list of steps is needed", described(parts)));
    } else {
      for (const Json& part : *parts) steps.push_back(&part);
    }
    return steps;
  }

  void read_version() {
    const Json* version = member(document.root, "version");
    if (version != nullptr && *version != "1.0")
      fail("version", fmt::format("is {}, '1.0' is known", describe_value(*version)));
  }

  void read_normalizer() {
    const Json* normalizer = member(document.root, "normalizer");
    if (normalizer == nullptr) return;
    for (const Json* step : steps_of(*normalizer, "normalizers", "normalizer")) {
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
    if (behavior == nullptr || *behavior != "Isolated")
      return fail("pre_tokenizer.behavior", fmt::format("is {}, 'Isolated' is known", described(behavior)));
    if (flag(step, "invert", "pre_tokenizer")) return fail("pre_tokenizer.invert", "is true, false is known");
    if (tokenizer.splits_.size() == kMostSplits) {
      return fail("pre_tokenizer.pretokenizers",
                  fmt::format("has more than {} steps that split, up to {} are allowed", kMostSplits, kMostSplits));
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
    for (const Json* step : steps_of(*pre, "pretokenizers", "pre_tokenizer")) {
      if (error) return;
      const std::string type = type_of(*step);
      if (is_byte_level) return fail("pre_tokenizer", "has a step after ByteLevel, which must be the last");
      if (type == "Split") {
        read_split(*step);
      } else if (type == "ByteLevel") {
        is_byte_level = true;
        if (flag(*step, "add_prefix_space", "pre_tokenizer"))
          return fail("pre_tokenizer.add_prefix_space", "is true, false is known");
        if (flag(*step, "use_regex", "pre_tokenizer", true)) tokenizer.splits_.push_back(SplitPattern::of_byte_level());
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
    texts.reserve(vocab->size());
    for (const auto& [token, id] : vocab->items()) {
      if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= kMostIds) {
        return fail("model.vocab", fmt::format("gives {} the id {}, 0 to {} is allowed", in_quotes(token),
                                               describe_value(id), kMostIds - 1));
      }
      if (!is_valid_utf8(token))
        return fail("model.vocab", fmt::format("has the token {}, not UTF-8", in_quotes(token)));
      const auto own = vocabulary.emplace(token, static_cast<int32_t>(id.get<int64_t>())).first;
      const auto [first, is_new] = texts.emplace(own->second, own->first);
      if (!is_new) {
        return fail(
            "model.vocab",
            fmt::format("gives {} and {} the same id {}", in_quotes(first->second), in_quotes(token), first->first),
            kOneEach);
      }
      largest = std::max(largest, first->first);
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
      const bool is_nothing = value == nullptr || (std::string_view(key) == "dropout" ? *value == 0.0 : *value == "");
      if (!is_nothing)
        return fail(fmt::format("model.{}", key), fmt::format("is {}, null is known", describe_value(*value)));
    }
    if (flag(*model, "byte_fallback", "model", false)) return fail("model.byte_fallback", "is true, false is known");
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
    if (flag(*model, "ignore_merges", "model", false)) {
      for (const auto& [token, id] : vocabulary) {
        if (std::optional<std::string> bytes = bytes_of_entry(token)) whole.emplace(*std::move(bytes), id);
      }
    }
    tokenizer.pairs_ = BytePairs(byte_ids, merges, std::move(whole));
  }

  /// What is wrong with an added token's id or text is said once for all.
  AddedToken read_added_token(const Json& entry, const std::string& field) {
    const Json* id = member(entry, "id");
    const Json* content = member(entry, "content");
    if (id == nullptr || !id->is_number_integer() || id->get<int64_t>() < 0 || id->get<int64_t>() >= kMostIds) {
      fail(field + ".id", fmt::format("is {}, a whole number from 0 to {} is needed", described(id), kMostIds - 1));
      return {};
    }
    if (content == nullptr || !content->is_string() || !is_valid_utf8(content->get_ref<const std::string&>())) {
      fail(field + ".content", fmt::format("is {}, a text in UTF-8 is needed", described(content)));
      return {};
    }
    if (content->get_ref<const std::string&>().size() > AddedTokens::kMostBytes) {
      fail(field + ".content", fmt::format("has {} bytes, up to {} are allowed",
                                           content->get_ref<const std::string&>().size(), AddedTokens::kMostBytes));
      return {};
    }
    return {.id = id->get<int64_t>(),
            .content = content->get<std::string>(),
            .is_special = flag(entry, "special", field),
            .is_normalized = flag(entry, "normalized", field),
            .is_single_word = flag(entry, "single_word", field),
            .takes_left = flag(entry, "lstrip", field),
            .takes_right = flag(entry, "rstrip", field)};
  }

  /// A text with two ids, or an id with two texts: where text is learnt would depend on which of them counts.
  bool contradicts(const AddedToken& token, const std::string& field) {
    const auto id = tokenizer.ids_.find(token.content);
    if (id != tokenizer.ids_.end() && id->second != token.id) {
      fail(field,
           fmt::format("gives {} the id {}, but it has {} already", in_quotes(token.content), token.id, id->second),
           kOneEach);
    } else if (const auto text = texts.find(token.id); text != texts.end() && text->second != token.content) {
      fail(field,
           fmt::format("gives {} the id {}, which is that of {}", in_quotes(token.content), token.id,
                       in_quotes(text->second)),
           kOneEach);
    }
    return error.has_value();
  }

  void read_added_tokens() {
    const Json* list = member(document.root, "added_tokens");
    if (list == nullptr) return;
    if (!list->is_array()) return fail("added_tokens", fmt::format("is {}, a list is needed", describe_value(*list)));
    std::vector<AddedToken> plain, normalized;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string field = fmt::format("added_tokens[{}]", i);
      AddedToken token = read_added_token((*list)[i], field);
      if (error || contradicts(token, field)) return;
      const auto [first, is_new] = added.emplace(token.id, token);
      if (!is_new) {
        if (first->second == token) continue;
        return fail(field, fmt::format("gives {} again, with other flags", in_quotes(token.content)), kOneEach);
      }
      const bool is_own = texts.emplace(token.id, first->second.content).second;
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
      // The bytes of what merges make stay those that were merged.
      if (is_own) tokenizer.bytes_[at] = bytes_of_entry(token.content).value_or(token.content);
      (token.is_normalized ? normalized : plain).push_back(std::move(token));
    }
    tokenizer.plain_added_ = AddedTokens(std::move(plain));
    tokenizer.normalized_added_ = AddedTokens(std::move(normalized));
  }

  /// Decoding joins the bytes of tokens, which is what "ByteLevel" does. Files without a decoder are read so, too.
  void read_decoder() {
    const Json* decoder = member(document.root, "decoder");
    if (decoder == nullptr) return;
    for (const Json* step : steps_of(*decoder, "decoders", "decoder")) {
      if (const std::string type = type_of(*step); type != "ByteLevel")
        return fail("decoder", fmt::format("has the step {}; ByteLevel is known", in_quotes(type)));
    }
  }

  /// What is put around a text: "TemplateProcessing". Offsets, which other steps change, are not kept here.
  void read_ends() {
    const Json* processor = member(document.root, "post_processor");
    if (processor == nullptr) return;
    for (const Json* step : steps_of(*processor, "processors", "post_processor")) {
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
      if (const Json* text = member(item, "Sequence")) {
        const Json* name = member(*text, "id");
        if (is_after || name == nullptr || *name != "A")
          return fail("post_processor.single", "has another text than the sequence 'A', once");
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
    if (!is_after) fail("post_processor.single", "lacks the sequence 'A', which is the text");
  }
};

Result<Tokenizer> Tokenizer::read(const Document& document) {
  Reader reader{.document = document};
  if (!document.root.is_object()) reader.fail("", "is not an object, a tokenizer.json is needed");
  if (!reader.error) reader.read_version();
  if (!reader.error) reader.read_model();
  if (!reader.error) reader.read_normalizer();
  if (!reader.error) reader.read_pre_tokenizer();
  if (!reader.error) reader.read_added_tokens();
  if (!reader.error) reader.read_ends();
  if (!reader.error) reader.read_decoder();
  if (reader.error) return *std::move(reader.error);
  return std::move(reader.tokenizer);
}

Result<Tokenizer> Tokenizer::read_folder(const std::filesystem::path& folder) {
  WEFT_TRY(const Document document, read_document(folder / "tokenizer.json", kTokenizerLimits));
  return read(document);
}

}  // namespace weft
