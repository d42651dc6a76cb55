#pragma once

#include <functional>
#include <map>
#include <span>

#include "weft/checkpoint/checkpoint.h"
#include "weft/weights/weight_entry.h"

namespace weft {

/// What a rank is to write.
struct RankContent {
  std::vector<StoredPart> parts;
  std::vector<WeightInfo> weights;           ///< the parts' tensors
  std::map<std::string, int64_t> num_parts;  ///< by weight

  /// Adds a part, whose tensors have these types; `tensor` is named here.
  void add(StoredPart part, WeightType value, WeightType moment);
};

/// The bytes of one of the tensors, which need only last until the next call.
using TensorBytes = std::function<Result<std::span<const std::byte>>(const WeightInfo&)>;

/// Writes a rank's file into a folder and brings it to disk, one tensor at a time. The entry has the parts, and a
/// checksum for every chunk.
Result<CheckpointFile> write_rank_file(const std::filesystem::path& folder, int64_t rank, RankContent content,
                                       int64_t chunk_bytes, const TensorBytes& bytes_of_tensor);

/// checkpoint.json, flushed.
std::optional<Error> write_checkpoint_json(const std::filesystem::path& folder, const Checkpoint& checkpoint);

}  // namespace weft
