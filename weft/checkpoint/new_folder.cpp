#include "weft/checkpoint/new_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr const char* kSaving = ".saving-";
constexpr const char* kRemoving = ".removing-";
constexpr const char* kReplaced = ".replaced-";

std::filesystem::path parent_of(const std::filesystem::path& folder) {
  return folder.has_parent_path() ? folder.parent_path() : ".";
}

Error failure(const std::filesystem::path& path, const std::string& what, int code) {
  const bool is_full = code == ENOSPC || code == EDQUOT;
  return {.kind = ErrorKind::kJob,
          .source = path.string(),
          .problem = what + std::strerror(code),
          .advice = is_full ? "Free some space, or write elsewhere." : "Check the folder and its permissions."};
}

std::optional<Error> sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failure(folder, "cannot be opened: ", errno);
  const int code = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // Some file systems cannot, and need not.
  if (code != 0 && code != EINVAL) return failure(folder, "cannot be brought to disk: ", code);
  return std::nullopt;
}

std::optional<Error> remove_tree(const std::filesystem::path& folder) {
  std::error_code problem;
  std::filesystem::remove_all(folder, problem);
  if (problem) return failure(folder, "cannot be removed: ", problem.value());
  return std::nullopt;
}

std::optional<Error> check_new(const std::filesystem::path& folder) {
  std::error_code problem;
  // The folder takes the place of what has its name, of a link itself.
  const std::filesystem::file_status there = std::filesystem::symlink_status(folder, problem);
  if (!exists(there) || (is_directory(there) && std::filesystem::is_empty(folder, problem))) return std::nullopt;
  return Error{.source = folder.string(),
               .problem = "is there already, and not an empty folder",
               .advice = "Give a folder that is still to be made."};
}

/// Makes it and those around it, and brings the names to disk.
std::optional<Error> make_folders(const std::filesystem::path& folder) {
  std::error_code problem;
  const bool is_new = std::filesystem::create_directories(folder, problem);
  if (problem) return failure(folder, "cannot be made: ", problem.value());
  return is_new ? sync_folder(parent_of(folder)) : std::nullopt;
}

}  // namespace

std::filesystem::path hidden_folder(const std::filesystem::path& folder) {
  return parent_of(folder) / (kSaving + folder.filename().string());
}

std::optional<Error> begin_folder(const std::filesystem::path& folder) {
  const std::filesystem::path hidden = hidden_folder(folder);
  if (auto error = make_folders(parent_of(folder))) return error;
  if (auto error = remove_tree(hidden)) return error;
  std::error_code problem;
  std::filesystem::create_directory(hidden, problem);
  if (problem) return failure(hidden, "cannot be made: ", problem.value());
  return std::nullopt;
}

std::optional<Error> remove_leftovers(const std::filesystem::path& around, const std::string& names) {
  std::vector<std::filesystem::path> left;
  std::error_code problem;
  std::filesystem::directory_iterator entry(around, problem);
  if (problem == std::errc::no_such_file_or_directory) return std::nullopt;
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    const std::string name = entry->path().filename().string();
    const bool is_left =
        name.starts_with(kSaving + names) || name.starts_with(kRemoving + names) || name.starts_with(kReplaced + names);
    if (is_left) left.push_back(entry->path());
  }
  if (problem) return failure(around, "cannot be read: ", problem.value());
  for (const std::filesystem::path& path : left) {
    const std::string name = path.filename().string();
    const std::filesystem::path own = around / name.substr(name.starts_with(kReplaced) ? std::strlen(kReplaced) : 0);
    if (name.starts_with(kReplaced) && !std::filesystem::exists(own, problem)) {
      if (std::rename(path.c_str(), own.c_str()) != 0) return failure(path, "cannot be renamed: ", errno);
    } else if (auto error = remove_tree(path)) {
      return error;
    }
  }
  return std::nullopt;
}

std::optional<Error> finish_folder(const std::filesystem::path& folder) {
  const std::filesystem::path hidden = hidden_folder(folder);
  if (auto error = sync_folder(hidden)) return error;
  std::error_code ignored;
  const bool replaces = std::filesystem::exists(folder, ignored);
  const bool is_exchanged =
      replaces && renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0;
  if (!is_exchanged) {
    // Where the file system cannot exchange two: the old one steps aside, and comes back if the new one cannot follow.
    const std::filesystem::path aside = parent_of(folder) / (kReplaced + folder.filename().string());
    if (replaces) {
      if (auto error = remove_tree(aside)) return error;
      if (std::rename(folder.c_str(), aside.c_str()) != 0) return failure(folder, "cannot be replaced: ", errno);
    }
    if (std::rename(hidden.c_str(), folder.c_str()) != 0) {
      const int reason = errno;
      if (replaces) std::rename(aside.c_str(), folder.c_str());
      return failure(folder, "cannot be given its name: ", reason);
    }
    if (auto error = sync_folder(parent_of(folder))) return error;
    if (replaces) std::filesystem::remove_all(aside, ignored);  // else the next save does
    return std::nullopt;
  }
  if (auto error = sync_folder(parent_of(folder))) return error;
  // What was replaced has the hidden name now. It is in nobody's way, and the next save would remove it, too.
  discard_folder(folder);
  return std::nullopt;
}

void discard_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(hidden_folder(folder), ignored);
}

std::optional<Error> remove_folder(const std::filesystem::path& folder) {
  const std::filesystem::path going = parent_of(folder) / (kRemoving + folder.filename().string());
  if (std::rename(folder.c_str(), going.c_str()) != 0) return failure(folder, "cannot be removed: ", errno);
  // Without its name on disk first, a power loss could leave half of a checkpoint under it.
  if (auto error = sync_folder(parent_of(folder))) return error;
  return remove_tree(going);
}

Result<NewFolder> NewFolder::begin(const std::filesystem::path& given) {
  // A final slash is not a name.
  const std::filesystem::path folder = given.has_filename() ? given : given.parent_path();
  if (auto error = check_new(folder)) return *std::move(error);
  if (auto error = make_folders(parent_of(folder))) return *std::move(error);
  std::filesystem::path lock_file = hidden_folder(folder);
  lock_file += ".lock";
  FileLock lock = FileLock::take(lock_file);
  if (lock.state() == FileLock::State::kFailed) {
    return Error{.kind = ErrorKind::kJob,
                 .source = lock_file.string(),
                 .problem = "cannot be written: " + lock.text(),
                 .advice = "Check the folder and its permissions, or write elsewhere."};
  }
  if (lock.state() == FileLock::State::kTaken) {
    // It may not have written down yet who it is.
    const std::string who = lock.text().empty() ? "" : fmt::format(" ({})", printable(lock.text()));
    return Error{.source = folder.string(),
                 .problem = "is being written by another process" + who,
                 .advice = "Wait until it has ended, or give another folder."};
  }
  NewFolder made(folder, std::move(lock));
  // Once more, now that nobody else makes it.
  if (auto error = check_new(folder)) return *std::move(error);
  if (auto error = begin_folder(folder)) return *std::move(error);
  return made;
}

NewFolder::~NewFolder() {
  if (lock_.state() == FileLock::State::kFailed) return;  // moved from
  discard_folder(folder_);
  lock_.remove();
}

std::optional<Error> NewFolder::finish() {
  if (auto error = sync_folder(hidden())) return error;
  // It takes the place of nothing and of an empty folder alone.
  if (std::rename(hidden().c_str(), folder_.c_str()) != 0) return failure(folder_, "cannot be given its name: ", errno);
  return sync_folder(parent_of(folder_));
}

}  // namespace weft
