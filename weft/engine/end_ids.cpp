#include "weft/engine/end_ids.h"

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/engine/token_range.h"

namespace weft {
namespace {

constexpr const char* kKey = "eos_token_id";

/// One number or a list of them.
Result<std::vector<int64_t>> end_ids_of(const Document& document) {
  Findings findings(document.source);
  Fields fields(document, findings);
  std::vector<int64_t> ids;
  const Json* value = fields.raw(kKey);
  if (value != nullptr && value->is_array()) {
    ids = fields.integers_or_empty(kKey, kTokenRange);
  } else if (value != nullptr) {
    ids = {fields.integer(kKey, kTokenRange)};
  }
  if (findings.first()) return *findings.first();
  return ids;
}

}  // namespace

Result<std::vector<int64_t>> read_end_ids(const std::filesystem::path& folder, const Model& model,
                                          const ModelNumbers& numbers) {
  const std::filesystem::path generation = folder / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) {
    WEFT_TRY(const Document document, read_document(generation));
    WEFT_TRY(std::vector<int64_t> ids, end_ids_of(document));
    if (!ids.empty()) return ids;
  }
  // What is said of the whole model goes before what is said of its language model.
  WEFT_TRY(std::vector<int64_t> ids, end_ids_of({.source = (folder / "config.json").string(), .root = model.config}));
  return ids.empty() ? numbers.llm.end_ids : ids;
}

}  // namespace weft
