#include "weft/probe/header_bytes.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft {

void HeaderBytes::Closer::operator()(int* descriptor) const {
  if (*descriptor >= 0) close(*descriptor);
  delete descriptor;
}

Result<HeaderBytes> HeaderBytes::open(const std::filesystem::path& path) {
  const auto refuse = [&](std::string problem, std::string advice) {
    return Error{.source = path.string(), .problem = std::move(problem), .advice = std::move(advice)};
  };
  HeaderBytes bytes;
  // Not blocking: a pipe without a writer would hold us here for ever.
  bytes.file_.reset(new int(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)));
  struct stat status {};
  if (*bytes.file_ < 0 || fstat(*bytes.file_, &status) != 0) {
    const int code = errno;
    return refuse(std::string("cannot be read: ") + std::strerror(code),
                  code == ENOENT ? "Check the path." : "Check the path and its permissions.");
  }
  if (S_ISDIR(status.st_mode)) return refuse("is a folder, a file is needed", "Give the file inside it.");
  if (!S_ISREG(status.st_mode)) return refuse("is no regular file", "Copy its bytes to a file.");
  bytes.size_ = status.st_size;
  return bytes;
}

HeaderBytes HeaderBytes::of(std::span<const uint8_t> memory) {
  HeaderBytes bytes;
  bytes.memory_ = memory;
  bytes.size_ = std::ssize(memory);
  return bytes;
}

void HeaderBytes::look_at(int64_t offset) {
  window_begin_ = window_end_ = offset;
  if (num_windows_ == kMostWindows) return;
  ++num_windows_;
  while (window_end_ - window_begin_ < kWindow) {
    const int64_t filled = window_end_ - window_begin_;
    const ssize_t got =
        pread(*file_, window_.data() + filled, static_cast<size_t>(kWindow - filled), static_cast<off_t>(window_end_));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return;
    window_end_ += got;
  }
}

uint8_t HeaderBytes::at(int64_t offset) {
  if (offset < 0 || offset >= size_) {
    ran_out_ = true;
    return 0;
  }
  if (!file_) return memory_[static_cast<size_t>(offset)];
  if (offset < window_begin_ || offset >= window_end_) look_at(offset);
  if (offset >= window_end_) {
    ran_out_ = true;
    return 0;
  }
  return window_[static_cast<size_t>(offset - window_begin_)];
}

uint16_t HeaderBytes::big16(int64_t offset) {
  return static_cast<uint16_t>(at(offset) << 8 | at(offset + 1));
}

uint32_t HeaderBytes::big32(int64_t offset) {
  return static_cast<uint32_t>(big16(offset)) << 16 | big16(offset + 2);
}

uint16_t HeaderBytes::little16(int64_t offset) {
  return static_cast<uint16_t>(at(offset) | at(offset + 1) << 8);
}

uint32_t HeaderBytes::little24(int64_t offset) {
  return little16(offset) | static_cast<uint32_t>(at(offset + 2)) << 16;
}

uint32_t HeaderBytes::little32(int64_t offset) {
  return little16(offset) | static_cast<uint32_t>(little16(offset + 2)) << 16;
}

uint64_t HeaderBytes::little64(int64_t offset) {
  return little32(offset) | static_cast<uint64_t>(little32(offset + 4)) << 32;
}

bool HeaderBytes::has(int64_t offset, std::string_view letters) {
  if (offset < 0 || size_ - offset < std::ssize(letters)) return false;
  for (size_t i = 0; i < letters.size(); ++i) {
    if (at(offset + static_cast<int64_t>(i)) != static_cast<uint8_t>(letters[i])) return false;
  }
  return true;
}

}  // namespace weft
