#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

#include "weft/base/result.h"

namespace weft {

/// A file's bytes as memory, read from disk when they are touched. It may be replaced by another of its name meanwhile,
/// but whoever shortens it in place ends this process: writers must rename, as ours does.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

/// Starts reading mapped bytes from disk, so that touching them later need not wait. Returns at once.
void will_need(std::span<const std::byte> bytes);

/// Takes the whole pages inside mapped bytes out of this process's memory, for readers that go through a large file
/// once. What is touched again comes back from the system's cache, or from disk. Only for bytes of a MappedFile: other
/// memory would lose its content.
void done_with(std::span<const std::byte> bytes);

}  // namespace weft
