#include "weft/engine/run_claim.h"

#include <cerrno>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "weft/base/paths.h"
#include "weft/base/text.h"
#include "weft/spec/model_name.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Error cannot(const fs::path& folder, const char* what, const std::string& reason) {
  return {.source = folder.string(),
          .problem = fmt::format("cannot be {}: {}", what, reason),
          .advice = "Choose another run folder, or make room and give permission there."};
}

}  // namespace

fs::path claim_file(const fs::path& folder) {
  return folder / "run.lock";
}

std::string read_claim(const fs::path& folder) {
  return read_lock_text(claim_file(folder));
}

RunClaim::RunClaim(RunClaim&& other) noexcept
    : folder_(std::move(other.folder_)),
      made_(std::move(other.made_)),
      lock_(std::move(other.lock_)),
      is_kept_(std::exchange(other.is_kept_, true)) {
  other.made_.clear();
}

RunClaim::~RunClaim() {
  if (is_kept_) return;
  if (lock_.has_made_file()) lock_.remove();
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) rmdir(path->c_str());  // unless something is in it
}

std::optional<Error> RunClaim::lock() {
  lock_ = FileLock::take(claim_file(folder_));
  if (lock_.state() == FileLock::State::kFailed) return cannot(folder_, "written to", lock_.text());
  if (lock_.state() != FileLock::State::kTaken) return std::nullopt;
  const std::string& holder = lock_.text();
  return Error{.source = folder_.string(),
               .problem = "is being written by another run" +
                          (holder.empty() ? std::string() : fmt::format(" ({})", printable(holder))),
               .advice = "Wait until it has ended, or choose another run folder."};
}

Result<RunClaim> RunClaim::take(const fs::path& folder) {
  RunClaim claim(folder);
  std::error_code failure;
  std::vector<fs::path> missing;
  for (fs::path path = whole_path(folder); !fs::exists(path, failure) && !failure; path = path.parent_path())
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
  const std::string name = as_model_name(model_name);
  for (int number = 1;; ++number) {
    const fs::path folder = runs / (number == 1 ? name : fmt::format("{}-{}", name, number));
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
