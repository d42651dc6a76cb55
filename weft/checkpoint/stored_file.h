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
  at::Tensor tensor(const std::string& name) const { return tensors_.at(name); }

 private:
  std::unordered_map<std::string, at::Tensor> tensors_;
};

}  // namespace weft
