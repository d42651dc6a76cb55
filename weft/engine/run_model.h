#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/spec/model.h"

namespace weft {

/// The folder whose tokenizer and templates a run has used, by what a checkpoint says of it; empty where it used none.
std::filesystem::path text_folder_of(const Json& run);

/// Why a model cannot be asked to continue texts: it is a user's own program.
std::optional<Error> find_no_text(const Model& model, std::string source);

/// The newest checkpoint of a run's folder as a Hugging Face folder, which is written into the run's folder "model"
/// where that is not done yet.
Result<std::filesystem::path> model_of_run(const std::filesystem::path& run_folder);

}  // namespace weft
