#pragma once

#include "weft/base/result.h"
#include "weft/engine/convert_request.h"

namespace weft {

/// Makes a Hugging Face folder, or a checkpoint of any plan, of a run, a checkpoint or a Hugging Face folder. One
/// process does it, with one part of a weight in memory at a time. What comes out is whole or not there.
Result<ConvertReport> convert(const ConvertRequest& request);

/// What a checkpoint, a run's newest one, or a Hugging Face folder holds. `verify` checks every byte of a checkpoint.
Result<FolderDescription> describe_folder(const std::filesystem::path& folder, bool verify = false);

}  // namespace weft
