#include "weft/base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "weft/base/units.h"

namespace weft {
namespace {

Error cannot_read(const std::filesystem::path& path, int code) {
  return {.source = path.string(),
          .problem = std::string("cannot be read: ") + std::strerror(code),
          .advice = code == ENOENT ? "Check the path." : "Check the path and its permissions."};
}

}  // namespace

Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  if (path.empty()) {
    return Error{.problem = "the path of a file to read is empty", .advice = "Give the path of the file."};
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return Error{
        .source = path.string(), .problem = "is a folder, a file is needed", .advice = "Give the file inside it."};
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return cannot_read(path, errno);

  std::string bytes;
  constexpr size_t kChunk = 1 << 16;
  while (bytes.size() <= max_bytes) {
    const size_t old_size = bytes.size();
    bytes.resize(old_size + kChunk);
    const size_t got = std::fread(bytes.data() + old_size, 1, kChunk, file.get());
    bytes.resize(old_size + got);
    if (got < kChunk) {
      if (std::ferror(file.get())) return cannot_read(path, errno);
      break;
    }
  }
  if (bytes.size() > max_bytes) {
    return Error{
        .source = path.string(),
        .problem = "is larger than the " + format_bytes(static_cast<double>(max_bytes)) + " allowed for such a file",
        .advice = "Check that this is the file you meant."};
  }
  return bytes;
}

std::optional<Error> write_file(const std::filesystem::path& path, std::string_view bytes) {
  const auto failure = [&](int code) {
    return Error{.kind = ErrorKind::kJob,
                 .source = path.string(),
                 .problem = std::string("cannot be written: ") + std::strerror(code),
                 .advice = "Check the folder, its permissions and the space left."};
  };
  std::error_code ignored;
  const bool is_special = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  if (is_special && std::filesystem::is_directory(path, ignored)) return failure(EISDIR);
  // A pipe or a device is written to; it cannot be replaced.
  std::string temporary = is_special ? path.string() : path.string() + ".XXXXXX";
  const int descriptor = is_special ? open(path.c_str(), O_WRONLY) : mkstemp(temporary.data());
  if (descriptor < 0) return failure(errno);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(fdopen(descriptor, "wb"), &std::fclose);
  if (!is_special) fchmod(descriptor, 0644);
  const bool is_written =
      std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size() && std::fflush(file.get()) == 0;
  const int code = errno;
  if (is_special) return is_written ? std::nullopt : std::optional(failure(code));
  if (!is_written || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = failure(is_written ? errno : code);
    std::remove(temporary.c_str());
    return error;
  }
  return std::nullopt;
}

}  // namespace weft
