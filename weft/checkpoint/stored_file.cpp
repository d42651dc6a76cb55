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

/// Piece by piece, so that of a large chunk no more than two pieces are in memory.
uint32_t checksum_of(std::span<const std::byte> left) {
  uint32_t checksum = 0;
  const bool is_large = left.size() > kCheckedBytes;
  will_need(left.first(std::min(kCheckedBytes, left.size())));
  while (!left.empty()) {
    const std::span<const std::byte> here = left.first(std::min(kCheckedBytes, left.size()));
    left = left.subspan(here.size());
    will_need(left.first(std::min(kCheckedBytes, left.size())));
    checksum = crc32c(here, checksum);
    if (is_large) done_with(here);
  }
  return checksum;
}

}  // namespace

Error StoredFile::refuse(std::string field, std::string problem) const {
  return {.source = path_.string(),
          .field = std::move(field),
          .problem = std::move(problem),
          .advice = "The checkpoint is damaged: copy it again, or use an older one."};
}

Error StoredFile::refuse_chunk(int64_t begin, int64_t end, uint32_t found, uint32_t expected) const {
  // A chunk with the header in it fails before the header is believed. It is read all the same, for the message alone:
  // a header that does not parse is the damage, one that does says which tensors lie in the chunk.
  std::vector<std::string> names;
  if (const auto content = read_safetensors(mapping_->bytes(), path_.string())) {
    for (const WeightEntry& entry : content->entries) {
      const int64_t from = entry.bytes.data() - mapping_->bytes().data();
      if (from < end && from + std::ssize(entry.bytes) > begin) names.push_back(printable(entry.info.name));
    }
  }
  std::string what = "of the file";
  if (names.size() == 2) what += fmt::format(", in which {} lies, too,", names.back());
  if (names.size() > 2)
    what += fmt::format(", in which {} more tensors lie, up to {},", names.size() - 1, names.back());
  return refuse(names.empty() ? "" : names.front(),
                fmt::format("bytes {} to {} {} have the CRC-32C {:08x}, but {} says {:08x}", with_commas(begin),
                            with_commas(end), what, found, kCheckpointJsonName, expected));
}

std::optional<Error> StoredFile::check(int64_t begin, int64_t end) {
  if (begin >= end) return std::nullopt;
  for (int64_t chunk = begin / file_->chunk_bytes; chunk * file_->chunk_bytes < end; ++chunk) {
    const auto index = static_cast<size_t>(chunk);
    if (is_checked_[index]) continue;
    const int64_t from = chunk * file_->chunk_bytes;
    const int64_t to = std::min(from + file_->chunk_bytes, file_->num_bytes);
    const uint32_t checksum =
        checksum_of(mapping_->bytes().subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
    num_read_bytes_ += to - from;
    if (checksum != file_->chunks[index]) return refuse_chunk(from, to, checksum, file_->chunks[index]);
    is_checked_[index] = true;
  }
  return std::nullopt;
}

std::optional<Error> StoredFile::check_all() {
  for (int64_t from = 0; from < file_->num_bytes; from += file_->chunk_bytes) {
    const int64_t to = std::min(from + file_->chunk_bytes, file_->num_bytes);
    if (auto error = check(from, to)) return error;
    done_with(mapping_->bytes().subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
  }
  return std::nullopt;
}

std::optional<Error> StoredFile::read_header() {
  const std::span<const std::byte> bytes = mapping_->bytes();
  // The length of the header is the first that is believed, so it is checked first.
  if (auto error = check(0, std::min(kHeaderLengthBytes, file_->num_bytes))) return error;
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), std::min(sizeof(length), bytes.size()));
  const auto longest = static_cast<uint64_t>(std::max<int64_t>(0, file_->num_bytes - kHeaderLengthBytes));
  if (auto error = check(0, kHeaderLengthBytes + static_cast<int64_t>(std::min(length, longest)))) return error;
  auto content = read_safetensors(bytes, path_.string());
  if (!content) return std::move(content).error();
  for (const WeightEntry& entry : content->entries) {
    const auto type = tensor_type(entry.info.type);
    if (!type) return refuse(entry.info.name, fmt::format("holds {}, which states are not", name_of(entry.info.type)));
    const auto count = std::ssize(entry.bytes) / static_cast<int64_t>(c10::elementSize(*type));
    const auto options = at::TensorOptions().dtype(*type);
    Stored stored{.mapped = entry.bytes, .is_copied = !is_aligned(entry) || count == 0};
    stored.elements = stored.is_copied ? at::empty({count}, options)
                                       : at::from_blob(
                                             const_cast<std::byte*>(entry.bytes.data()), {count},
                                             [mapping = mapping_](void*) {}, options);
    tensors_.emplace(entry.info.name, std::move(stored));
  }
  return std::nullopt;
}

Result<StoredFile> StoredFile::open(const std::filesystem::path& folder, const CheckpointFile& file) {
  const std::filesystem::path path = folder / checkpoint_file_name(file.rank);
  WEFT_TRY(std::shared_ptr<const MappedFile> mapping, MappedFile::open(path));
  StoredFile opened(path, file, std::move(mapping));
  const int64_t size = std::ssize(opened.mapping_->bytes());
  if (size != file.num_bytes) {
    return opened.refuse("", fmt::format("has {} bytes, but {} says {}", with_commas(size), kCheckpointJsonName,
                                         with_commas(file.num_bytes)));
  }
  if (auto error = opened.read_header()) return *std::move(error);
  for (const StoredPart& part : file.parts) {
    for (const char* name : {kValueName, kMoment1Name, kMoment2Name}) {
      if (!part.is_trained && name != kValueName) continue;
      const auto found = opened.tensors_.find(part.tensor + name);
      if (found == opened.tensors_.end()) return opened.refuse(part.tensor + name, "is missing");
      const int64_t count = found->second.elements.numel();
      if (count == part.elements.size()) continue;
      return opened.refuse(part.tensor + name, fmt::format("has {} elements, but {} says {}", count,
                                                           kCheckpointJsonName, part.elements.size()));
    }
  }
  return opened;
}

Result<at::Tensor> StoredFile::tensor(const std::string& name, const ElementRange& elements) {
  Stored& stored = tensors_.at(name);
  const int64_t first = stored.mapped.data() - mapping_->bytes().data();
  const int64_t size = stored.elements.element_size();
  if (stored.is_copied) {
    if (auto error = check(first, first + std::ssize(stored.mapped))) return *std::move(error);
    if (!stored.mapped.empty()) std::memcpy(stored.elements.data_ptr(), stored.mapped.data(), stored.mapped.size());
  } else if (auto error = check(first + elements.begin * size, first + elements.end * size)) {
    return *std::move(error);
  }
  return stored.elements;
}

}  // namespace weft
