#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "weft/base/error.h"
#include "weft/spec/model.h"

namespace weft {

/// Whether a Hugging Face folder holds the plan's model, as an error that names the fields that differ.
std::optional<Error> check_same_model(const std::filesystem::path& folder, const Model& model);

/// Whether a run or a checkpoint, which `source` is a text of, goes on with the plan's model: whatever computing
/// depends on must be the same, while types of files and the like may differ.
std::optional<Error> check_same_model(const Model& there, const std::string& source, const Model& model);

}  // namespace weft
