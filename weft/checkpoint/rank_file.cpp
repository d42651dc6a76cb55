#include "weft/checkpoint/rank_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/checkpoint/checkpoint_json.h"
#include "weft/checkpoint/crc32c.h"
#include "weft/weights/new_file.h"
#include "weft/weights/safetensors_header.h"

namespace weft {
namespace {

/// Checksums of the chunks of a file, as it grows.
class ChunkSums {
 public:
  explicit ChunkSums(int64_t chunk_bytes) : chunk_bytes_(static_cast<size_t>(chunk_bytes)) {}

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      if (in_chunk_ == 0) sums_.push_back(0);
      const std::span<const std::byte> here = bytes.first(std::min(bytes.size(), chunk_bytes_ - in_chunk_));
      sums_.back() = crc32c(here, sums_.back());
      in_chunk_ = (in_chunk_ + here.size()) % chunk_bytes_;
      bytes = bytes.subspan(here.size());
    }
  }
  const std::vector<uint32_t>& sums() const { return sums_; }

 private:
  size_t chunk_bytes_;
  size_t in_chunk_ = 0;
  std::vector<uint32_t> sums_;
};

}  // namespace

void RankContent::add(StoredPart part, WeightType value, WeightType moment) {
  part.tensor = fmt::format("{}#{}", part.piece.name, num_parts[part.piece.name]++);
  const auto add_tensor = [&](const char* name, WeightType type) {
    weights.push_back({.name = part.tensor + name, .type = type, .shape = {part.elements.size()}});
  };
  add_tensor(kValueName, value);
  if (part.is_trained) {
    add_tensor(kMoment1Name, moment);
    add_tensor(kMoment2Name, moment);
  }
  parts.push_back(std::move(part));
}

Result<CheckpointFile> write_rank_file(const std::filesystem::path& folder, int64_t rank, RankContent content,
                                       int64_t chunk_bytes, const TensorBytes& bytes_of_tensor) {
  const std::filesystem::path path = folder / checkpoint_file_name(rank);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return Error{.kind = ErrorKind::kJob,
                 .source = path.string(),
                 .problem = "cannot be written: rank 0 has made its folder, but here it is not there",
                 .advice = "Save to a file system that all ranks share."};
  }
  sort_for_safetensors(content.weights);
  WEFT_TRY(const std::string front, safetensors_front(content.weights, {}, path.string()));
  CheckpointFile written{
      .rank = rank, .num_bytes = std::ssize(front), .chunk_bytes = chunk_bytes, .parts = std::move(content.parts)};
  for (const WeightInfo& weight : content.weights) written.num_bytes += *bytes_of(weight.type, weight.shape);
  WEFT_TRY(NewFile file, NewFile::create(path, written.num_bytes));
  ChunkSums sums(chunk_bytes);
  const auto append = [&](std::span<const std::byte> bytes) {
    sums.add(bytes);
    return file.append(bytes);
  };
  if (auto error = append(std::as_bytes(std::span(front)))) return *std::move(error);
  for (const WeightInfo& weight : content.weights) {
    WEFT_TRY(const std::span<const std::byte> bytes, bytes_of_tensor(weight));
    WEFT_CHECK(std::ssize(bytes) == *bytes_of(weight.type, weight.shape), "{} bytes for {}", bytes.size(), weight.name);
    if (auto error = append(bytes)) return *std::move(error);
  }
  if (auto error = file.finish()) return *std::move(error);
  written.chunks = sums.sums();
  return written;
}

std::optional<Error> write_checkpoint_json(const std::filesystem::path& folder, const Checkpoint& checkpoint) {
  const std::string text = checkpoint_to_text(checkpoint);
  auto file = NewFile::create(folder / kCheckpointJsonName, std::ssize(text));
  if (!file) return std::move(file).error();
  if (auto error = file->append(std::as_bytes(std::span(text)))) return error;
  return file->finish();
}

}  // namespace weft
