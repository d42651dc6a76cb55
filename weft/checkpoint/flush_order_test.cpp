// What reaches the disk in which order, from the system calls of a save: what a power loss can leave.
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/checkpoint/example_run.h"
#include "tests/support/weights/example_files.h"
#include "weft/checkpoint/new_folder.h"
#include "weft/weights/new_file.h"

namespace {

/// The calls that matter, of all threads, in their order.
struct Call {
  enum class Kind { kFlush, kRename, kExchange, kRemove } kind;
  std::string path, to;
};

std::mutex calls_guard;
std::vector<Call>* recorded = nullptr;

void note(Call call) {
  const std::lock_guard lock(calls_guard);
  if (recorded != nullptr) recorded->push_back(std::move(call));
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// In this program these are found before the C library's.
extern "C" int fsync(int descriptor) {
  char name[4096];
  const ssize_t length = readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), name, sizeof name);
  note({Call::Kind::kFlush, std::string(name, static_cast<size_t>(std::max<ssize_t>(0, length))), ""});
  return real<int(int)>("fsync")(descriptor);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  note({Call::Kind::kRename, from, to});
  return real<int(const char*, const char*)>("rename")(from, to);
}

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  note({Call::Kind::kExchange, from, to});
  return real<int(int, const char*, int, const char*, unsigned int)>("renameat2")(from_folder, from, to_folder, to,
                                                                                  flags);
}

namespace weft {
namespace {

using std::filesystem::path;

/// A disk that keeps what was flushed and, at a power loss, nothing else for certain.
class Disk {
 public:
  explicit Disk(path around) : around_(std::move(around)) {}

  /// The reason why a call comes too early; empty where it does not.
  std::string take(const Call& call) {
    const path from = call.path, to = call.to;
    if (call.kind == Call::Kind::kFlush) {
      flushed_.insert(call.path);
      pending_names_.erase(call.path);
      return "";
    }
    if (call.kind == Call::Kind::kRemove) return "";
    std::string problem;
    if (from.parent_path() == around_) {
      // A folder gets its name, or loses it.
      if (from.filename().string().starts_with(".saving-")) {
        for (const std::string& file : files_in(from))
          if (!was_flushed_.contains(file)) problem = file + " has its name before its bytes are on disk";
        if (pending_names_.contains(from.string())) problem = "the folder is renamed before its entries are on disk";
        if (files_in(from).empty()) problem = "a folder without files is renamed";
      } else if (pending_names_.contains(around_.string())) {
        problem = from.string() + " goes before the new checkpoint has its name on disk";
      }
      pending_names_.insert(around_.string());
    } else {
      // A file gets its name inside a folder.
      if (!flushed_.contains(call.path)) problem = call.path + " is renamed before it is on disk";
      was_flushed_.insert(call.to);
      files_.insert(call.to);
      pending_names_.insert(to.parent_path().string());
    }
    return problem;
  }

  bool has_pending() const { return !pending_names_.empty(); }

 private:
  std::set<std::string> files_in(const path& folder) const {
    std::set<std::string> found;
    for (const std::string& file : files_)
      if (path(file).parent_path() == folder) found.insert(file);
    return found;
  }

  path around_;
  std::set<std::string> flushed_;        ///< paths at the moment of a flush
  std::set<std::string> was_flushed_;    ///< files under their names that were flushed before they had them
  std::set<std::string> files_;          ///< that got a name
  std::set<std::string> pending_names_;  ///< folders whose entries are not on disk
};

std::vector<Call> calls_of(const std::function<void()>& action) {
  std::vector<Call> calls;
  {
    const std::lock_guard lock(calls_guard);
    recorded = &calls;
  }
  action();
  const std::lock_guard lock(calls_guard);
  recorded = nullptr;
  return calls;
}

std::vector<Call> calls_of_saves(const path& folder) {
  // One that is replaced, and others that are removed.
  return calls_of([&] { save_example(folder, {1, 2, 2, 3}, 1); });
}

TEST(FlushOrder, NothingHasItsNameBeforeItIsOnDisk) {
  const ScratchFolder scratch;
  const path folder = std::filesystem::canonical(scratch.path());
  const std::vector<Call> calls = calls_of_saves(folder);
  ASSERT_GE(calls.size(), 30u) << "the calls are not seen";
  Disk disk(folder);
  for (const Call& call : calls) EXPECT_EQ(disk.take(call), "");
  EXPECT_FALSE(disk.has_pending()) << "a save ends with everything on disk";
}

TEST(FlushOrder, AConvertedFolderHasItsNameWhenItIsOnDisk) {
  const ScratchFolder scratch;
  const path folder = std::filesystem::canonical(scratch.path());
  const std::vector<Call> calls = calls_of([&] {
    auto made = NewFolder::begin(folder / "model");
    ASSERT_TRUE(made.ok()) << made.error().message();
    for (const char* name : {"model.safetensors", "config.json"}) {
      auto file = NewFile::create(made->hidden() / name, 4);
      ASSERT_TRUE(file.ok()) << file.error().message();
      ASSERT_FALSE(file->append(std::as_bytes(std::span("text", 4))));
      ASSERT_FALSE(file->finish());
    }
    ASSERT_FALSE(made->finish());
  });
  Disk disk(folder);
  size_t num_renames = 0;
  for (const Call& call : calls) {
    EXPECT_EQ(disk.take(call), "");
    num_renames += call.kind == Call::Kind::kRename ? 1 : 0;
  }
  EXPECT_EQ(num_renames, 3u) << "two files and the folder";
  EXPECT_FALSE(disk.has_pending());
}

// The proof sees what it is for: without the flush of any file it fails, and without the last of a folder.
TEST(FlushOrder, FlushesThatAreLeftOutAreSeen) {
  const ScratchFolder scratch;
  const path folder = std::filesystem::canonical(scratch.path());
  const std::vector<Call> calls = calls_of_saves(folder);
  size_t num_files = 0, num_folders = 0;
  for (size_t left_out = 0; left_out < calls.size(); ++left_out) {
    if (calls[left_out].kind != Call::Kind::kFlush) continue;
    Disk disk(folder);
    bool is_seen = false;
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i != left_out) is_seen |= !disk.take(calls[i]).empty();
    }
    const std::string name = path(calls[left_out].path).filename();
    const bool is_file = name.find(".safetensors") != std::string::npos || name.find(".json") != std::string::npos;
    num_files += is_file ? 1 : 0;
    num_folders += !is_file && (is_seen || disk.has_pending()) ? 1 : 0;
    // A folder is flushed after each of its files, too, and the last time counts.
    EXPECT_TRUE(is_seen || !is_file) << calls[left_out].path;
  }
  EXPECT_EQ(num_files, 4u * 3u) << "two ranks and checkpoint.json, four times";
  EXPECT_GE(num_folders, 2u);
}

}  // namespace
}  // namespace weft
