#include "weft/base/file_lock.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <random>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "a host without a name";
}

/// The same file, and not one that was removed and made anew meanwhile.
bool is_still_there(int descriptor, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && lstat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

std::string read_lock_text(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!is_regular_file(symlink_status(path, ignored))) return "";
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

FileLock FileLock::take(const std::filesystem::path& path) {
  FileLock lock;
  lock.file_ = path;
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::error_code ignored;
    // What a link leads to is somebody else's, and a pipe or a device holds no text.
    const std::filesystem::file_status there = symlink_status(path, ignored);
    if (exists(there) && !is_regular_file(there)) {
      lock.text_ = fmt::format("{} is no regular file", path.filename().string());
      return lock;
    }
    lock.has_made_file_ = !exists(there);
    lock.descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (lock.descriptor_ < 0) {
      lock.text_ = std::strerror(errno);
      return lock;
    }
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    const int problem = fcntl(lock.descriptor_, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
    if (problem == EAGAIN || problem == EACCES) {
      lock.text_ = read_lock_text(path);
      lock.state_ = State::kTaken;
      lock.close();
      return lock;
    }
    if (problem == 0 && !is_still_there(lock.descriptor_, path)) {
      lock.close();
      continue;
    }
    lock.text_ = fmt::format("process {} on {}, {:08x}", getpid(), host_name(), std::random_device{}());
    const std::string line = lock.text_ + "\n";
    if (ftruncate(lock.descriptor_, 0) != 0 ||
        pwrite(lock.descriptor_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) {
      lock.text_ = std::strerror(errno);
      return lock;
    }
    fsync(lock.descriptor_);
    lock.state_ = problem == 0 ? State::kLocked : State::kWithoutLocks;
    return lock;
  }
  lock.text_ = "other processes take it and give it back all the time";
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::move(other.file_)),
      state_(std::exchange(other.state_, State::kFailed)),
      text_(std::move(other.text_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      has_made_file_(std::exchange(other.has_made_file_, false)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  close();
  file_ = std::move(other.file_);
  state_ = std::exchange(other.state_, State::kFailed);
  text_ = std::move(other.text_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  has_made_file_ = std::exchange(other.has_made_file_, false);
  return *this;
}

FileLock::~FileLock() {
  close();
}

void FileLock::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void FileLock::remove() {
  if (descriptor_ >= 0 && is_still_there(descriptor_, file_)) unlink(file_.c_str());
  close();
}

}  // namespace weft
