#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/comm/signature.h"

namespace weft {

/// One operation of one rank, as messages name it.
struct OperationNote {
  Signature what;
  int64_t number = 0;          ///< counts this rank's operations on the group, from 1
  std::array<char, 64> group;  ///< the group's name, shortened; ends in 0

  OperationNote() : group{} {}
  OperationNote(const Signature& what_in, int64_t number_in, std::string_view group_name);
};

/// "all_reduce of 1024 fp32 (sum), operation 17 of group 'tp'".
std::string text(const OperationNote& note);
void append_text(std::string& line, const OperationNote& note);

enum class RankPhase : uint8_t { kStarted, kWaiting, kFinished };

/// A small file that a rank's line is kept in as memory that the kernel owns: it is there after the process was killed.
class RecordFile {
 public:
  static constexpr size_t kBytes = 512;

  RecordFile() = default;
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  /// Makes the file, filled with blanks. Returns what went wrong.
  std::optional<Error> open(const std::filesystem::path& path);
  bool is_open() const { return memory_ != nullptr; }
  const std::filesystem::path& path() const { return path_; }
  void write(std::string_view line);
  /// Overwrites some letters of the line.
  void overwrite(size_t at, std::string_view letters);
  /// Deletes it: nothing went wrong that anyone would read up on.
  void remove();

 private:
  std::filesystem::path path_;
  char* memory_ = nullptr;
  size_t length_ = kBytes - 1;  ///< of the line, without the blanks after it
};

/// What a rank did last, for the messages of others and, in a file, for those who come after. Several threads of a rank
/// may note.
class RankRecord {
 public:
  explicit RankRecord(int64_t rank) : rank_(rank) {}

  /// Keeps the record in folder/rank-N too, from now on. The folder is made. Returns what went wrong.
  std::optional<Error> keep_in(const std::filesystem::path& folder);
  void remove_file() { file_.remove(); }
  const std::filesystem::path& path() const { return file_.path(); }

  void note(RankPhase phase, const OperationNote& operation);
  /// "awaiting all_reduce of ...", "no operation yet".
  std::string text() const;
  /// How long the rank has been blocked in operations altogether.
  void add_waited(std::chrono::nanoseconds time) { waited_ns_.fetch_add(time.count(), std::memory_order_relaxed); }
  std::chrono::nanoseconds waited() const {
    return std::chrono::nanoseconds(waited_ns_.load(std::memory_order_relaxed));
  }
  /// The operation that the rank waits for, if it does.
  std::optional<OperationNote> waited_for() const;

 private:
  /// Whether the line's time changed.
  bool update_time();

  int64_t rank_;
  std::atomic<int64_t> waited_ns_{0};
  mutable std::mutex mutex_;
  std::optional<RankPhase> phase_;
  OperationNote operation_;
  RecordFile file_;
  std::string line_;        ///< of the file: whose it is, and the time
  size_t time_begin_ = 0;   ///< in the line
  size_t words_begin_ = 0;  ///< what comes after the time
  int64_t time_ms_ = 0;     ///< that the line shows
};

/// The line in another rank's file, or nothing.
std::optional<std::string> read_record(const std::filesystem::path& folder, int64_t rank);

}  // namespace weft
