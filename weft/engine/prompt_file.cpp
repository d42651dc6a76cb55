#include "weft/engine/prompt_file.h"

#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/engine/predict_request.h"
#include "weft/engine/token_range.h"
#include "weft/models/tensor_file.h"

namespace weft {
namespace {

constexpr DocumentLimits kLimits{.max_bytes = 64u << 20, .max_values = 8'000'000};

Error located(Error error, const std::filesystem::path& source, const std::string& place = "") {
  if (error.source.empty()) error.source = source.string();
  if (!place.empty()) error.field = error.field.empty() ? place : place + "." + error.field;
  return error;
}

/// A prompt of a JSON file before its tensors are read.
struct PromptFields {
  std::optional<std::vector<int64_t>> input_ids;
  std::optional<std::string> tensors;
  bool has_audio_in_video = false;
  std::optional<int64_t> max_new_tokens;
  std::string place;
};

std::optional<int64_t> read_max_new_tokens(Fields& fields) {
  if (!fields.has("max_new_tokens")) {
    fields.raw("max_new_tokens");
    return std::nullopt;
  }
  return fields.integer("max_new_tokens", {1, kMostNewTokens});
}

PromptFields read_prompt(Fields& fields, std::string place) {
  PromptFields prompt{.place = std::move(place)};
  const bool has_ids = fields.has("input_ids");
  if (const Json* ids = fields.raw("input_ids"); ids != nullptr && ids->is_string()) {
    fields.complain("input_ids",
                    fmt::format("is the text {}, a list of token ids is needed", in_quotes(ids->get<std::string>())),
                    "Turn words into ids with the model's tokenizer.");
    return prompt;
  }
  std::vector<int64_t> ids = fields.integers_or_empty("input_ids", kTokenRange);
  if (has_ids) prompt.input_ids = std::move(ids);
  if (fields.has("tensors")) prompt.tensors = fields.text("tensors");
  fields.raw("tensors");
  prompt.has_audio_in_video = fields.flag_or("use_audio_in_video", false);
  prompt.max_new_tokens = read_max_new_tokens(fields);
  fields.reject_unknown();
  if (!prompt.input_ids && !prompt.tensors) {
    fields.complain("input_ids", "is missing", "Give the prompt's token ids, or \"tensors\", a file that holds them.");
  }
  if (prompt.input_ids && prompt.input_ids->empty()) {
    fields.complain("input_ids", "is empty", "Give at least one token.");
  }
  return prompt;
}

Result<std::vector<PromptFields>> read_document_prompts(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  std::vector<PromptFields> prompts;
  if (fields.has("prompts")) {
    std::vector<Fields> list = fields.objects("prompts");
    const std::optional<int64_t> max_new_tokens = read_max_new_tokens(fields);
    fields.reject_unknown();
    if (list.empty()) fields.complain("prompts", "is empty", "Give at least one prompt.");
    for (size_t i = 0; i < list.size() && !findings.first(); ++i) {
      prompts.push_back(read_prompt(list[i], fmt::format("prompts[{}]", i)));
      if (!prompts.back().max_new_tokens) prompts.back().max_new_tokens = max_new_tokens;
    }
  } else {
    fields.raw("prompts");
    prompts.push_back(read_prompt(fields, ""));
  }
  if (findings.first()) return *findings.first();
  return prompts;
}

Result<PromptEntry> entry_of(const PromptFields& prompt, const std::filesystem::path& path) {
  std::map<std::string, at::Tensor> tensors;
  std::filesystem::path source = path;
  if (prompt.tensors) {
    source = path.parent_path() / *prompt.tensors;
    WEFT_TRY(tensors, read_tensors(source));
  }
  if (prompt.input_ids) {
    if (tensors.contains("input_ids")) {
      return located({.field = "input_ids",
                      .problem = fmt::format("is given here and in {}", source.string()),
                      .advice = "Leave one of the two out."},
                     path, prompt.place);
    }
    tensors["input_ids"] = at::tensor(*prompt.input_ids, at::kLong);
  }
  auto raw = raw_inputs(std::move(tensors));
  if (!raw) return located(std::move(raw).error(), source, prompt.tensors ? "" : prompt.place);
  raw->has_audio_in_video |= prompt.has_audio_in_video;
  return PromptEntry{.raw = *std::move(raw), .max_new_tokens = prompt.max_new_tokens, .place = prompt.place};
}

}  // namespace

Result<std::vector<PromptEntry>> read_prompt_file(const std::filesystem::path& path) {
  std::vector<PromptEntry> entries;
  if (path.extension() == ".safetensors") {
    WEFT_TRY(auto tensors, read_tensors(path));
    auto raw = raw_inputs(std::move(tensors));
    if (!raw) return located(std::move(raw).error(), path);
    entries.push_back({.raw = *std::move(raw)});
    return entries;
  }
  WEFT_TRY(const std::string text, read_file(path, kLimits.max_bytes));
  WEFT_TRY(const Document document, parse_document(text, path.string(), Syntax::kJson, kLimits));
  WEFT_TRY(const std::vector<PromptFields> prompts, read_document_prompts(document));
  for (const PromptFields& prompt : prompts) {
    WEFT_TRY(PromptEntry entry, entry_of(prompt, path));
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace weft
