#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/checkpoint/checkpoint.h"
#include "weft/weights/mapped_file.h"

namespace weft {

/// A rank's file of a checkpoint, mapped. Its bytes are compared with their checksums chunk by chunk, when they are
/// first asked for.
class StoredFile {
 public:
  /// Checks header and parts. The entry must outlive it.
  static Result<StoredFile> open(const std::filesystem::path& folder, const CheckpointFile& file);

  /// All of a tensor, flat, of which these elements have been checked. A view of the file, which must not be written.
  Result<at::Tensor> tensor(const std::string& name, const ElementRange& elements);
  /// Leaves a tensor's bytes to the file, until they are read again.
  void done_with_tensor(const std::string& name) const { done_with(tensors_.at(name).mapped); }

  /// All bytes.
  std::optional<Error> check_all();
  /// Bytes of the chunks that were read so far.
  int64_t num_read_bytes() const { return num_read_bytes_; }

 private:
  struct Stored {
    at::Tensor elements;
    std::span<const std::byte> mapped;
    bool is_copied = false;  ///< because it could not be used in place
  };
  StoredFile(std::filesystem::path path, const CheckpointFile& file, std::shared_ptr<const MappedFile> mapping)
      : path_(std::move(path)), file_(&file), mapping_(std::move(mapping)), is_checked_(file.chunks.size()) {}

  Error refuse(std::string field, std::string problem) const;
  /// Bytes of the file, from one to before another.
  std::optional<Error> check(int64_t begin, int64_t end);
  /// A chunk with another checksum than it should have, with the tensors that lie in it.
  Error refuse_chunk(int64_t begin, int64_t end, uint32_t found, uint32_t expected) const;
  std::optional<Error> read_header();

  std::filesystem::path path_;
  const CheckpointFile* file_;
  std::shared_ptr<const MappedFile> mapping_;
  std::vector<bool> is_checked_;
  std::unordered_map<std::string, Stored> tensors_;
  int64_t num_read_bytes_ = 0;
};

}  // namespace weft
