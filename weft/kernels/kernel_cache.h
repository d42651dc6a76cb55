#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace weft {

/// Compiled kernels on disk. A file that is cut off, changed or of another key is as good as none.
class KernelCache {
 public:
  /// WEFT_KERNEL_CACHE, or weft/kernels in the user's cache folder; nowhere without a home: nothing is kept.
  static KernelCache of_user();
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::optional<std::string> find(const std::string& key) const;
  /// Writes the file whole or not at all. That a folder cannot be written costs time at the next start, no more.
  void keep(const std::string& key, const std::string& code) const;
  std::filesystem::path file_of(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace weft
