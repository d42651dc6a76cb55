#pragma once

#include <filesystem>
#include <optional>

#include "weft/base/error.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model.h"

namespace weft {

/// Whether a Hugging Face folder holds the plan's model, as an error that names the fields that differ.
std::optional<Error> check_same_model(const std::filesystem::path& folder, const Model& model);

/// Fills this rank's parameters from a folder.
std::optional<Error> load_start_weights(const std::filesystem::path& folder, const Model& model, TrainingRank& rank);

}  // namespace weft
