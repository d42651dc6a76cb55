#include "weft/weights/mapped_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace weft {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  const auto refuse = [&](std::string problem, std::string advice) {
    return Error{.source = path.string(), .problem = std::move(problem), .advice = std::move(advice)};
  };
  const auto refuse_code = [&](const char* what, int code) {
    return refuse(std::string(what) + std::strerror(code),
                  code == ENOENT ? "Check the path." : "Check the path and its permissions.");
  };
  // Not blocking: a pipe without a writer would hold us here for ever.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) return refuse_code("cannot be read: ", errno);
  struct stat status {};
  if (fstat(file.number(), &status) != 0) return refuse_code("cannot be read: ", errno);
  if (S_ISDIR(status.st_mode)) return refuse("is a folder, a file is needed", "Give the file inside it.");
  if (!S_ISREG(status.st_mode)) return refuse("is no regular file, which weights must be", "Copy its bytes to a file.");
  if (status.st_size == 0) return refuse("is empty", "Copy or download it again.");

  const auto size = static_cast<size_t>(status.st_size);
  void* start = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number(), 0);
  if (start == MAP_FAILED) return refuse_code("cannot be mapped into memory: ", errno);
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<const std::byte*>(start), size}));
}

MappedFile::~MappedFile() {
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void will_need(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  // Whole pages: a map starts at the start of one.
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(bytes.data()) % page;
  auto* first = const_cast<std::byte*>(bytes.data() - before);
  // A hint: where the kernel does not take it, reading is only slower.
  (void)madvise(first, before + bytes.size(), MADV_WILLNEED);
}

void done_with(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + page - 1) / page * page, end = (begin + bytes.size()) / page * page;
  if (first < end) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace weft
