#include "weft/weights/safetensors_file.h"

#include <cstdint>

#include "weft/weights/mapped_file.h"
#include "weft/weights/safetensors_header.h"

namespace weft {

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  WEFT_TRY(const std::shared_ptr<const MappedFile> mapping, MappedFile::open(path));
  WEFT_TRY(SafetensorsContent content, read_safetensors(mapping->bytes(), path.string()));
  SafetensorsFile file;
  file.path_ = path;
  file.metadata_ = std::move(content.metadata);
  file.entries_ = std::move(content.entries);
  for (size_t i = 0; i < file.entries_.size(); ++i) {
    file.entries_[i].owner = mapping;
    file.places_.emplace(file.entries_[i].info.name, i);
  }
  return file;
}

const WeightEntry* SafetensorsFile::find(std::string_view name) const {
  const auto place = places_.find(std::string(name));
  return place == places_.end() ? nullptr : &entries_[place->second];
}

bool is_aligned(const WeightEntry& entry) {
  const int64_t bits = bits_of(entry.info.type);
  const auto alignment = static_cast<uintptr_t>(bits < 8 ? 1 : bits / 8);
  return reinterpret_cast<uintptr_t>(entry.bytes.data()) % alignment == 0;
}

}  // namespace weft
