#pragma once

#include <vector>

#include "weft/weights/new_file.h"
#include "weft/weights/weight_entry.h"

namespace weft {

/// Writes a safetensors file tensor by tensor, for whoever does not hold all of them at once. Byte for byte what the
/// format's own library writes; it keeps metadata in no particular order, here it is the given one.
class SafetensorsWriter {
 public:
  /// Names must be unique.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path, std::vector<WeightInfo> weights,
                                          const WeightMetadata& metadata);

  /// The weights in the order in which their bytes are to come.
  const std::vector<WeightInfo>& weights() const { return weights_; }
  /// The next bytes, in pieces of any size.
  std::optional<Error> append(std::span<const std::byte> bytes);
  /// Puts the file into place. Until then, and after an error, what was there before is untouched.
  std::optional<Error> finish();

 private:
  SafetensorsWriter(NewFile file, std::vector<WeightInfo> weights, int64_t missing_bytes)
      : file_(std::move(file)), weights_(std::move(weights)), missing_bytes_(missing_bytes) {}

  NewFile file_;
  std::vector<WeightInfo> weights_;
  int64_t missing_bytes_;
};

/// Entries, in any order, as a file.
std::optional<Error> write_safetensors(const std::filesystem::path& path, std::span<const WeightEntry> entries,
                                       const WeightMetadata& metadata);

}  // namespace weft
