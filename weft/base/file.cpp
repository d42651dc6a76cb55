#include "weft/base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

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

}  // namespace weft
