#pragma once

#include "weft/checkpoint/checkpoint.h"

namespace weft {

struct ExportOptions {
  /// Of the weights that are written; nothing: what the model's configuration says, else the master weights'.
  std::optional<Precision> type;
  int64_t max_file_bytes = 5'000'000'000;  ///< more weights are spread over several files, with an index
};

/// Writes the weights of a checkpoint as a new Hugging Face folder: config.json as the plan carries it, with the type
/// that is written, and model.safetensors. One process does it, with one whole weight in memory at a time. The bytes
/// of all files are checked. A folder that is there already must be empty.
std::optional<Error> export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       const ExportOptions& options = {});

}  // namespace weft
