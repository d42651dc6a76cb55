#include "weft/weights/new_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "weft/base/units.h"

namespace weft {
namespace {

/// What is handed to the disk at a time.
constexpr size_t kStretchBytes = size_t{16} << 20;

Error cannot_write(const std::filesystem::path& path, int code, const std::string& why = "") {
  const char* advice = code == ENOSPC || code == EDQUOT ? "Free some space, or write elsewhere."
                       : code == EFBIG                  ? "Spread the weights over more files, or write elsewhere."
                       : code == ENOENT                 ? "Create the folder first."
                                                        : "Check the folder and its permissions.";
  return {.kind = ErrorKind::kJob,
          .source = path.string(),
          .problem = std::string("cannot be written: ") + std::strerror(code) + why,
          .advice = advice};
}

std::string space_left(const std::filesystem::path& path, int64_t size_bytes) {
  std::error_code problem;
  const auto space = std::filesystem::space(path.has_parent_path() ? path.parent_path() : ".", problem);
  if (problem) return "";
  return fmt::format(" ({} needed, {} left)", format_bytes(static_cast<double>(size_bytes)),
                     format_bytes(static_cast<double>(space.available)));
}

}  // namespace

Result<NewFile> NewFile::create(const std::filesystem::path& path, int64_t size_bytes) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return Error{.source = path.string(),
                 .problem = "cannot be written: something other than a file has this name",
                 .advice = "Give another name."};
  }
  std::string temporary = path.string() + ".XXXXXX";
  const int descriptor = mkostemp(temporary.data(), O_CLOEXEC);
  if (descriptor < 0) return cannot_write(path, errno);
  NewFile file(path, std::move(temporary), descriptor);
  if (fchmod(descriptor, 0644) != 0) return cannot_write(path, errno);
  if (size_bytes > 0 && fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, size_bytes) != 0 && errno != EOPNOTSUPP) {
    const int code = errno;
    return cannot_write(path, code, code == ENOSPC ? space_left(path, size_bytes) : "");
  }
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      num_written_(other.num_written_),
      num_started_(other.num_started_) {}

NewFile::~NewFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

Error NewFile::failure(int code) const {
  return cannot_write(path_, code);
}

std::optional<Error> NewFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), std::min(bytes.size(), kStretchBytes));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure(errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
    num_written_ += written;
    start_writing();
  }
  return std::nullopt;
}

void NewFile::start_writing() {
  const int64_t length = num_written_ - num_started_;
  if (length < static_cast<int64_t>(kStretchBytes)) return;
  // Where it cannot, fsync does all of it.
  sync_file_range(descriptor_, num_started_, length, SYNC_FILE_RANGE_WRITE);
  num_started_ = num_written_;
}

std::optional<Error> NewFile::finish() {
  if (fsync(descriptor_) != 0) return failure(errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failure(errno);
  close(std::exchange(descriptor_, -1));
  // The new name, too, is only safe once its folder is.
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  const int folder_descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_descriptor < 0) return failure(errno);
  const int code = fsync(folder_descriptor) == 0 ? 0 : errno;
  close(folder_descriptor);
  // Some file systems cannot, and need not.
  if (code != 0 && code != EINVAL) return failure(code);
  return std::nullopt;
}

}  // namespace weft
