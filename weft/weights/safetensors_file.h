#pragma once

#include <filesystem>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/base/result.h"
#include "weft/weights/weight_entry.h"

namespace weft {

/// A safetensors file, mapped and judged. Its entries own a share of the map, so a copy of one outlives the file.
/// Nothing of a tensor is read before its bytes are touched; `will_need` starts that early.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const WeightMetadata& metadata() const { return metadata_; }
  /// In the order of their bytes.
  const std::vector<WeightEntry>& entries() const { return entries_; }
  /// nullptr where there is none of this name.
  const WeightEntry* find(std::string_view name) const;

 private:
  SafetensorsFile() = default;

  std::filesystem::path path_;
  WeightMetadata metadata_;
  std::vector<WeightEntry> entries_;
  std::unordered_map<std::string, size_t> places_;
};

/// Whether elements can be loaded in place. Of files by the format's library this is so for every type. Of others it
/// need not be: the format itself promises no alignment.
bool is_aligned(const WeightEntry& entry);

}  // namespace weft
