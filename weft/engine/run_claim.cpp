#include "weft/engine/run_claim.h"

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

#include "weft/base/text.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Error cannot(const fs::path& folder, const char* what, const std::string& reason) {
  return {.source = folder.string(),
          .problem = fmt::format("cannot be {}: {}", what, reason),
          .advice = "Choose another run folder, or make room and give permission there."};
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "a host without a name";
}

/// The same file, and not one that was removed and made anew meanwhile.
bool is_still_there(int descriptor, const fs::path& path) {
  struct stat opened {
  }, named{};
  return fstat(descriptor, &opened) == 0 && stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

fs::path claim_file(const fs::path& folder) {
  return folder / "run.lock";
}

std::string read_claim(const fs::path& folder) {
  std::ifstream file(claim_file(folder));
  std::string line;
  std::getline(file, line);
  return line;
}

RunClaim::RunClaim(RunClaim&& other) noexcept
    : folder_(std::move(other.folder_)),
      made_(std::move(other.made_)),
      text_(std::move(other.text_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      is_locked_(other.is_locked_),
      is_new_file_(other.is_new_file_),
      is_kept_(other.is_kept_) {
  other.made_.clear();
  other.is_new_file_ = false;
}

RunClaim::~RunClaim() {
  if (!is_kept_) {
    // While it is still locked, so that nobody takes what is about to go.
    if (is_new_file_ && descriptor_ >= 0 && is_still_there(descriptor_, claim_file(folder_)))
      unlink(claim_file(folder_).c_str());
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());  // unless something is in it
  }
  if (descriptor_ >= 0) close(descriptor_);
}

std::optional<Error> RunClaim::lock() {
  const fs::path file = claim_file(folder_);
  constexpr int kMostTries = 100;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::error_code ignored;
    is_new_file_ = !fs::exists(file, ignored);
    descriptor_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) return cannot(folder_, "written to", std::strerror(errno));
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    is_locked_ = fcntl(descriptor_, F_OFD_SETLK, &whole) == 0;
    const int problem = is_locked_ ? 0 : errno;
    if (problem == EAGAIN || problem == EACCES) {
      const std::string holder = read_claim(folder_);
      close(std::exchange(descriptor_, -1));
      is_new_file_ = false;
      return Error{.source = folder_.string(),
                   .problem = "is being written by another run" +
                              (holder.empty() ? std::string() : fmt::format(" ({})", printable(holder))),
                   .advice = "Wait until it has ended, or choose another run folder."};
    }
    if (is_locked_ && !is_still_there(descriptor_, file)) {
      close(std::exchange(descriptor_, -1));
      continue;
    }
    text_ = fmt::format("process {} on {}, {:08x}", getpid(), host_name(), std::random_device{}());
    const std::string line = text_ + "\n";
    if (ftruncate(descriptor_, 0) != 0 ||
        pwrite(descriptor_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
      return cannot(folder_, "written to", std::strerror(errno));
    fsync(descriptor_);
    return std::nullopt;
  }
  return cannot(folder_, "claimed", "other runs take it and give it back all the time");
}

Result<RunClaim> RunClaim::take(const fs::path& folder) {
  RunClaim claim(folder);
  std::error_code failure;
  std::vector<fs::path> missing;
  for (fs::path path = fs::absolute(folder).lexically_normal(); !fs::exists(path, failure) && !failure;
       path = path.parent_path())
    missing.push_back(path);
  if (failure) return cannot(folder, "made", failure.message());
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    if (path->filename().empty()) continue;  // a final slash
    if (fs::create_directory(*path, failure)) claim.made_.push_back(*path);
    if (failure) return cannot(folder, "made", failure.message());
  }
  if (!fs::is_directory(folder, failure))
    return cannot(folder, "made", "there is something of that name that is not a folder");
  if (auto error = claim.lock()) return *std::move(error);
  return claim;
}

Result<RunClaim> RunClaim::take_new(const std::string& model_name) {
  const fs::path runs = "runs";
  for (int number = 1;; ++number) {
    const fs::path folder = runs / (number == 1 ? model_name : fmt::format("{}-{}", model_name, number));
    std::error_code failure;
    if (fs::exists(folder, failure)) continue;
    const bool has_runs = fs::exists(runs, failure);
    fs::create_directories(runs, failure);
    if (failure) return cannot(folder, "made", failure.message());
    // Who makes it has it: of two that want the same name one gets the next.
    if (mkdir(folder.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      if (errno == ENOENT && number < 100'000) {  // another has just given back runs/ itself
        --number;
        continue;
      }
      return cannot(folder, "made", std::strerror(errno));
    }
    RunClaim claim(folder);
    if (!has_runs) claim.made_.push_back(runs);
    claim.made_.push_back(folder);
    if (auto error = claim.lock()) return *std::move(error);
    return claim;
  }
}

}  // namespace weft
