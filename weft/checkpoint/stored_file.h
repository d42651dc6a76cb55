#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

#include "weft/checkpoint/checkpoint.h"
#include "weft/weights/mapped_file.h"

namespace weft {

/// A rank's file of a checkpoint, mapped, of which every byte has been checked.
class StoredFile {
 public:
  static Result<StoredFile> open(const std::filesystem::path& folder, const CheckpointFile& file);

  /// Flat, as a view of the file, which must not be written.
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name).elements; }
  /// Leaves a tensor's bytes to the file, until they are read again.
  void done_with_tensor(const std::string& name) const { done_with(tensors_.at(name).mapped); }

 private:
  struct Stored {
    at::Tensor elements;
    std::span<const std::byte> mapped;  ///< nothing where the elements had to be copied
  };
  std::unordered_map<std::string, Stored> tensors_;
};

}  // namespace weft
