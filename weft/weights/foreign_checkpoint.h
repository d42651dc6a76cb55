#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// A checkpoint of Megatron-LM, or of MindSpeed on top of it, as far as the names of its files say what it is. Its
/// tensors are pickles, which are not opened: reading one means running code from it.
struct ForeignCheckpoint {
  enum class Form {
    kTorch,        ///< a file for each tensor- and pipeline-parallel rank, cut for their degrees
    kDistributed,  ///< files of torch.distributed.checkpoint (torch_dist, DCP), which fit any degrees
  };

  Form form = Form::kTorch;
  std::filesystem::path folder;      ///< of the iteration
  std::string iteration;             ///< "100", or "release" where weights were converted and not trained
  std::vector<int64_t> degrees;      ///< of kTorch: tp, then pp and ep as far as names have them
  std::vector<std::string> missing;  ///< folders of ranks that should be there, the first of them
  int64_t num_missing = 0;           ///< of all
  int64_t num_files = 0;
  int64_t num_bytes = 0;
};

/// The newest iteration of a folder, or the folder itself where it is one. Nothing where it is no such checkpoint; an
/// error where it names an iteration that is not there.
Result<std::optional<ForeignCheckpoint>> find_foreign_checkpoint(const std::filesystem::path& folder);

/// "tp 2 x pp 4".
std::string degrees_text(const ForeignCheckpoint& checkpoint);

}  // namespace weft
