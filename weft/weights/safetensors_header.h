#pragma once

#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/weights/weight_entry.h"

namespace weft {

/// The length field in front of the header, and the longest header that the format allows.
inline constexpr int64_t kHeaderLengthBytes = 8;
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

/// What a safetensors file holds: metadata, and entries whose bytes follow one another without holes.
struct SafetensorsContent {
  WeightMetadata metadata;
  std::vector<WeightEntry> entries;  ///< in the order of their bytes
};

/// Reads and judges all that is not the tensors' bytes. The entries' bytes are views of `file`.
Result<SafetensorsContent> read_safetensors(std::span<const std::byte> file, const std::string& source);

/// The order in which the format's library stores tensors, which puts wide types first and so keeps all aligned.
void sort_for_safetensors(std::vector<WeightInfo>& weights);

/// The front of a file, up to the first tensor's bytes: length, header and padding, as the format's library writes
/// them. Names must be unique; `source` is for errors.
Result<std::string> safetensors_front(const std::vector<WeightInfo>& weights, const WeightMetadata& metadata,
                                      const std::string& source);

}  // namespace weft
