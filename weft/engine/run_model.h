#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/spec/model.h"

namespace weft {

/// The folder with the weights that a run began with, by what a checkpoint says of it; empty where they were fresh.
/// Older versions wrote down a relative path as it was given, and it is not known from where: such a path leads
/// nowhere.
std::filesystem::path weights_folder_of(const Json& run);

/// The folder whose tokenizer and templates a run has used, by what a checkpoint says of it; empty where it used none.
std::filesystem::path text_folder_of(const Json& run);

/// Why a model cannot be asked to continue texts: it is a user's own program.
std::optional<Error> find_no_text(const Model& model, std::string source);

/// The newest checkpoint of a run's folder as a Hugging Face folder, which is written into the run's folder "model"
/// where that is not done yet.
Result<std::filesystem::path> model_of_run(const std::filesystem::path& run_folder);

}  // namespace weft
