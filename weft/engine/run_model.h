#pragma once

#include <filesystem>

#include "weft/base/result.h"

namespace weft {

/// The newest checkpoint of a run's folder as a Hugging Face folder, which is written into the run's folder "model"
/// where that is not done yet.
Result<std::filesystem::path> model_of_run(const std::filesystem::path& run_folder);

}  // namespace weft
