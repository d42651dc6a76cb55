#pragma once

#include <filesystem>
#include <optional>

#include "weft/base/file_lock.h"
#include "weft/base/result.h"

namespace weft {

// A folder that is written beside the one that it will be, under a hidden name, and then renamed: whole or not at all.

/// ".saving-NAME" beside it.
std::filesystem::path hidden_folder(const std::filesystem::path& folder);

/// Makes the hidden folder, empty, and the one around it where there is none.
std::optional<Error> begin_folder(const std::filesystem::path& folder);

/// Clears up what runs that died have left in a folder, of folders whose names begin so: what was begun or half removed
/// goes, and what had stepped aside for a successor that did not come gets its name back.
std::optional<Error> remove_leftovers(const std::filesystem::path& around, const std::string& names);

/// Brings it to disk and gives it its name. A folder that has the name already is replaced, in one instant where the
/// file system can.
std::optional<Error> finish_folder(const std::filesystem::path& folder);

/// Forgets what was begun.
void discard_folder(const std::filesystem::path& folder);

/// Takes a folder away: its name first, so that no one sees half of it.
std::optional<Error> remove_folder(const std::filesystem::path& folder);

/// A folder that one process makes and that replaces nothing. While it is made no other process can make the same; if
/// it is not finished, what was begun goes.
class NewFolder {
 public:
  /// An error where something is in the way, which an empty folder is not, or where another process is making it.
  static Result<NewFolder> begin(const std::filesystem::path& folder);

  NewFolder(NewFolder&& other) noexcept = default;
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  /// Where its files are written.
  std::filesystem::path hidden() const { return hidden_folder(folder_); }
  /// Brings it to disk and gives it its name, unless something has appeared there meanwhile.
  std::optional<Error> finish();

 private:
  NewFolder(std::filesystem::path folder, FileLock lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  std::filesystem::path folder_;
  FileLock lock_;  ///< of a file beside it
};

}  // namespace weft
