#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace weft {

/// A lock on a file, which ends with the process, however that ends, and is seen by other hosts where the file system
/// has `fcntl` locks. The file is made where it is not there, and has a line about who locked it.
class FileLock {
 public:
  enum class State : uint8_t {
    kLocked,
    kWithoutLocks,  ///< the file system has none: nobody can tell whether another process writes
    kTaken,         ///< by another process, which `text` is about
    kFailed,        ///< for the `text`'s reason
  };

  static FileLock take(const std::filesystem::path& file);

  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

  State state() const { return state_; }
  /// What the file says, or why there is no lock.
  const std::string& text() const { return text_; }
  bool has_made_file() const { return has_made_file_; }

  /// Removes the file while it is still locked, so that nobody takes what is about to go, and unlocks it.
  void remove();

 private:
  void close();

  std::filesystem::path file_;
  State state_ = State::kFailed;
  std::string text_;
  int descriptor_ = -1;
  bool has_made_file_ = false;
};

/// The first line of such a file, as seen from here; empty where there is none.
std::string read_lock_text(const std::filesystem::path& file);

}  // namespace weft
