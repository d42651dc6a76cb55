#pragma once

#include <optional>

#include "weft/exchange/export.h"

namespace weft {

// The three forms of export_mindspeed_mm.

/// The result file of its search: one pipeline that holds vision and language layers, or language layers alone.
Result<std::vector<ExportedFile>> export_mindspeed_search(const Plan& plan);

/// What that file cannot say, predictions aside.
std::optional<Error> refused_by_mindspeed_search(const Plan& plan);

/// Whether all modules lie in one pipeline, so that the search's file is for them.
bool is_one_pipeline(const Plan& plan);

/// Encoders in the llm's pipeline that the search's file has no place for: entries for its model.json, and the
/// arguments that go with them.
Result<std::vector<ExportedFile>> export_mindspeed_pipeline(const Plan& plan);

/// Encoders with degrees of their own: entries for its model.json, and the arguments that go with them.
Result<std::vector<ExportedFile>> export_mindspeed_modules(const Plan& plan);

}  // namespace weft
