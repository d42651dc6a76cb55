#include "weft/comm/rank_record.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/file.h"

namespace weft {
namespace {

std::filesystem::path record_path(const std::filesystem::path& folder, int64_t rank) {
  return folder / fmt::format("rank-{}", rank);
}

std::string_view words_of(RankPhase phase) {
  // All of one length, so that one takes another's place in a file.
  switch (phase) {
    case RankPhase::kStarted:
      return "starting";
    case RankPhase::kWaiting:
      return "awaiting";
    case RankPhase::kFinished:
      break;
  }
  return "finished";
}

/// "11:39:47.802"; short enough for a string without memory of its own.
std::string time_of_day() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto ms = now.time_since_epoch().count();
  std::string time = "00:00:00.000";
  const auto put = [&](size_t at, int64_t number, int digits) {
    for (; digits > 0; number /= 10) time[at + static_cast<size_t>(--digits)] = static_cast<char>('0' + number % 10);
  };
  put(0, ms / 3'600'000 % 24, 2);
  put(3, ms / 60'000 % 60, 2);
  put(6, ms / 1000 % 60, 2);
  put(9, ms % 1000, 3);
  return time;
}

Error file_error(const std::filesystem::path& path, const char* what) {
  return {.kind = ErrorKind::kJob,
          .source = path.string(),
          .problem = fmt::format("{}: {}", what, std::strerror(errno)),
          .advice = "Set WEFT_RECORDS to a folder that can be written."};
}

}  // namespace

OperationNote::OperationNote(const Signature& what_in, int64_t number_in, std::string_view group_name)
    : what(what_in), number(number_in), group{} {
  std::copy_n(group_name.begin(), std::min(group_name.size(), group.size() - 1), group.begin());
}

std::string text(const OperationNote& note) {
  return fmt::format("{}, operation {} of group '{}'", text(note.what), note.number, note.group.data());
}

RecordFile::~RecordFile() {
  if (memory_ != nullptr) munmap(memory_, kBytes);
}

std::optional<Error> RecordFile::open(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return file_error(path, "cannot be made");
  void* memory = MAP_FAILED;
  // Taken from the disk now: a full one is told of here and not by a signal in the middle of an operation.
  const int refused = posix_fallocate(file, 0, kBytes);
  if (refused != 0) {
    errno = refused;
  } else {
    memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  close(file);
  if (memory == MAP_FAILED) return file_error(path, "cannot be kept in memory");
  path_ = path;
  memory_ = static_cast<char*>(memory);
  write("");
  return {};
}

void RecordFile::write(std::string_view line) {
  const size_t length = std::min(line.size(), kBytes - 1);
  std::memcpy(memory_, line.data(), length);
  std::memset(memory_ + length, ' ', kBytes - 1 - length);
  memory_[kBytes - 1] = '\n';
}

void RecordFile::overwrite(size_t at, std::string_view letters) {
  if (at + letters.size() < kBytes) std::memcpy(memory_ + at, letters.data(), letters.size());
}

void RecordFile::remove() {
  if (!is_open()) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::optional<Error> RankRecord::keep_in(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::lock_guard lock(mutex_);
  if (auto error = file_.open(record_path(folder, rank_))) return error;
  prefix_ = fmt::format("rank {}, process {}, ", rank_, getpid());
  file_.write(fmt::format("{}{} UTC: no operation yet", prefix_, time_of_day()));
  return {};
}

void RankRecord::note(RankPhase phase, const OperationNote& operation) {
  const std::lock_guard lock(mutex_);
  const bool is_same = phase_ && operation_.number == operation.number && operation_.group == operation.group;
  phase_ = phase;
  operation_ = operation;
  if (!file_.is_open()) return;
  const std::string time = time_of_day();
  if (is_same) {
    file_.overwrite(prefix_.size(), time);
    file_.overwrite(prefix_.size() + time.size() + 6, words_of(phase));
  } else {
    file_.write(fmt::format("{}{} UTC: {} {}", prefix_, time, words_of(phase), weft::text(operation)));
  }
}

std::string RankRecord::text() const {
  const std::lock_guard lock(mutex_);
  if (!phase_) return "no operation yet";
  return fmt::format("{} {}", words_of(*phase_), weft::text(operation_));
}

std::optional<OperationNote> RankRecord::waited_for() const {
  const std::lock_guard lock(mutex_);
  if (phase_ != RankPhase::kWaiting) return {};
  return operation_;
}

std::optional<std::string> read_record(const std::filesystem::path& folder, int64_t rank) {
  const Result<std::string> bytes = read_file(record_path(folder, rank), RecordFile::kBytes);
  if (!bytes) return {};
  const size_t end = bytes->find_last_not_of(std::string_view(" \n\0", 3));
  if (end == std::string::npos) return {};
  return bytes->substr(0, end + 1);
}

}  // namespace weft
