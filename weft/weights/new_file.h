#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "weft/base/result.h"

namespace weft {

/// A file that is being written beside the one it will replace. `finish` brings it safely to disk and gives it its
/// name; without that, whatever had the name before stays as it was and nothing else is left behind.
class NewFile {
 public:
  /// Reserves the bytes where the file system can, so that a full disk is found before they are written.
  static Result<NewFile> create(const std::filesystem::path& path, int64_t size_bytes);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  std::optional<Error> append(std::span<const std::byte> bytes);
  std::optional<Error> finish();

 private:
  NewFile(std::filesystem::path path, std::string temporary, int descriptor)
      : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

  Error failure(int code) const;
  /// Has the disk begin with what was written, while the rest is still made.
  void start_writing();

  std::filesystem::path path_;
  std::string temporary_;
  int descriptor_;
  int64_t num_written_ = 0;
  int64_t num_started_ = 0;  ///< of these the disk was told
};

}  // namespace weft
