#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/file_lock.h"
#include "weft/base/result.h"

namespace weft {

/// A run's hold on its folder: no other run writes there while this lives, not even on another host. It ends with the
/// process, however that ends. A claim that is not kept is given back: what was made for it goes.
class RunClaim {
 public:
  /// Makes the folder where it is not there yet. The error says who holds it, or why it cannot be written to.
  static Result<RunClaim> take(const std::filesystem::path& folder);
  /// The first of runs/MODEL, runs/MODEL-2 and so on that is not there yet.
  static Result<RunClaim> take_new(const std::string& model_name);

  RunClaim(RunClaim&& other) noexcept;
  RunClaim& operator=(RunClaim&&) = delete;
  ~RunClaim();

  const std::filesystem::path& folder() const { return folder_; }
  /// False on a file system without locks: then nobody can tell whether another run writes here.
  bool is_locked() const { return lock_.state() == FileLock::State::kLocked; }
  /// What the lock's file says: ranks that see another text do not see this folder.
  const std::string& text() const { return lock_.text(); }
  /// The run has begun, and what it leaves stays.
  void keep() { is_kept_ = true; }

 private:
  explicit RunClaim(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::optional<Error> lock();

  std::filesystem::path folder_;
  std::vector<std::filesystem::path> made_;  ///< folders, from the outside in
  FileLock lock_;
  bool is_kept_ = false;
};

/// The file that is locked.
std::filesystem::path claim_file(const std::filesystem::path& folder);

/// What a claim's file says, as seen from here; empty where there is none.
std::string read_claim(const std::filesystem::path& folder);

}  // namespace weft
