#include "weft/checkpoint/stored_file.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/models/tensor_type.h"
#include "weft/weights/safetensors_file.h"
#include "weft/weights/safetensors_header.h"

namespace weft {
namespace {

/// What is checked at a time, while the same is read ahead.
constexpr size_t kCheckedBytes = size_t{16} << 20;

}  // namespace

Result<StoredFile> StoredFile::open(const std::filesystem::path& folder, const CheckpointFile& file) {
  const std::filesystem::path path = folder / checkpoint_file_name(file.rank);
  const auto refuse = [&](std::string field, std::string problem) {
    return Error{.source = path.string(),
                 .field = std::move(field),
                 .problem = std::move(problem),
                 .advice = "The checkpoint is damaged: copy it again, or use an older one."};
  };
  WEFT_TRY(const std::shared_ptr<const MappedFile> mapping, MappedFile::open(path));
  if (std::ssize(mapping->bytes()) != file.num_bytes) {
    return refuse("", fmt::format("has {} bytes, but {} says {}", with_commas(std::ssize(mapping->bytes())),
                                  kCheckpointJsonName, with_commas(file.num_bytes)));
  }
  // Piece by piece, so that no more than two of them are in memory.
  uint32_t checksum = 0;
  std::span<const std::byte> left = mapping->bytes();
  will_need(left.first(std::min(kCheckedBytes, left.size())));
  while (!left.empty()) {
    const std::span<const std::byte> here = left.first(std::min(kCheckedBytes, left.size()));
    left = left.subspan(here.size());
    will_need(left.first(std::min(kCheckedBytes, left.size())));
    checksum = crc32c(here, checksum);
    done_with(here);
  }
  if (checksum != file.checksum) {
    return refuse(
        "", fmt::format("has the CRC-32C {:08x}, but {} says {:08x}", checksum, kCheckpointJsonName, file.checksum));
  }
  WEFT_TRY(const SafetensorsContent content, read_safetensors(mapping->bytes(), path.string()));
  StoredFile opened;
  for (const WeightEntry& entry : content.entries) {
    const auto type = tensor_type(entry.info.type);
    if (!type) return refuse(entry.info.name, fmt::format("holds {}, which states are not", name_of(entry.info.type)));
    const auto count = std::ssize(entry.bytes) / static_cast<int64_t>(c10::elementSize(*type));
    const auto options = at::TensorOptions().dtype(*type);
    Stored stored;
    if (is_aligned(entry) && count > 0) {
      stored.elements = at::from_blob(
          const_cast<std::byte*>(entry.bytes.data()), {count}, [mapping](void*) {}, options);
      stored.mapped = entry.bytes;
    } else {
      stored.elements = at::empty({count}, options);
      if (count > 0) std::memcpy(stored.elements.data_ptr(), entry.bytes.data(), entry.bytes.size());
    }
    opened.tensors_.emplace(entry.info.name, std::move(stored));
  }
  for (const StoredPart& part : file.parts) {
    for (const char* name : {kValueName, kMoment1Name, kMoment2Name}) {
      if (!part.is_trained && name != kValueName) continue;
      const auto found = opened.tensors_.find(part.tensor + name);
      if (found == opened.tensors_.end()) return refuse(part.tensor + name, "is missing");
      const int64_t count = found->second.elements.numel();
      if (count == part.elements.size()) continue;
      return refuse(part.tensor + name,
                    fmt::format("has {} elements, but {} says {}", count, kCheckpointJsonName, part.elements.size()));
    }
  }
  return opened;
}

}  // namespace weft
