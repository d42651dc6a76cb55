#pragma once

#include <filesystem>
#include <optional>

#include "weft/base/error.h"
#include "weft/spec/model.h"

namespace weft {

/// Whether a Hugging Face folder holds the plan's model, as an error that names the fields that differ.
std::optional<Error> check_same_model(const std::filesystem::path& folder, const Model& model);

}  // namespace weft
