#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/weights/weight_type.h"

namespace weft {

/// Names in messages are cut after this many characters.
inline constexpr size_t kLongestShownName = 300;

/// What a weight file says of a tensor besides its bytes.
struct WeightInfo {
  std::string name;
  WeightType type = WeightType::kF32;
  std::vector<int64_t> shape;

  bool operator==(const WeightInfo&) const = default;
};

/// A named tensor in memory that someone else owns: in a mapped file, or about to be written.
struct WeightEntry {
  WeightInfo info;
  std::span<const std::byte> bytes;   ///< row-major and little-endian
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive; empty where the caller does
};

/// The texts of a file's `__metadata__`, in its order; nothing where the file has none.
using WeightMetadata = std::optional<std::vector<std::pair<std::string, std::string>>>;

}  // namespace weft
