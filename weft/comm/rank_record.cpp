#include "weft/comm/rank_record.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
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

constexpr std::string_view kTimeForm = "00:00:00.000";

/// Since 1970. The kernel's coarse clock is a few milliseconds late, and takes a fifth of the time.
int64_t coarse_unix_ms() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

/// Writes "11:39:47.802" over what is there.
void put_time_of_day(char* letters, int64_t ms) {
  const auto put = [&](size_t at, int64_t number, int digits) {
    for (; digits > 0; number /= 10) letters[at + static_cast<size_t>(--digits)] = static_cast<char>('0' + number % 10);
  };
  put(0, ms / 3'600'000 % 24, 2);
  put(3, ms / 60'000 % 60, 2);
  put(6, ms / 1000 % 60, 2);
  put(9, ms % 1000, 3);
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

void append_text(std::string& line, const OperationNote& note) {
  append_text(line, note.what);
  line += ", operation ";
  append_text(line, note.number);
  line += " of group '";
  line += note.group.data();
  line += '\'';
}

std::string text(const OperationNote& note) {
  std::string line;
  append_text(line, note);
  return line;
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
  length_ = kBytes - 1;
  write("");
  memory_[kBytes - 1] = '\n';
  return {};
}

void RecordFile::write(std::string_view line) {
  const size_t length = std::min(line.size(), kBytes - 1);
  std::memcpy(memory_, line.data(), length);
  if (length < length_) std::memset(memory_ + length, ' ', length_ - length);
  length_ = length;
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
  line_ = fmt::format("rank {}, process {}, ", rank_, getpid());
  time_begin_ = line_.size();
  line_ += kTimeForm;
  line_ += " UTC: ";
  words_begin_ = line_.size();
  line_.reserve(RecordFile::kBytes);
  update_time();
  line_ += "no operation yet";
  file_.write(line_);
  return {};
}

bool RankRecord::update_time() {
  const int64_t ms = coarse_unix_ms();
  if (ms == time_ms_) return false;
  time_ms_ = ms;
  put_time_of_day(line_.data() + time_begin_, ms);
  return true;
}

void RankRecord::note(RankPhase phase, const OperationNote& operation) {
  const std::lock_guard lock(mutex_);
  const bool is_same = phase_ && operation_.number == operation.number && operation_.group == operation.group &&
                       operation_.what == operation.what;
  phase_ = phase;
  if (!is_same) operation_ = operation;
  if (!file_.is_open()) return;
  const bool has_new_time = update_time();
  if (is_same) {
    if (has_new_time) file_.overwrite(time_begin_, std::string_view(line_).substr(time_begin_, kTimeForm.size()));
    file_.overwrite(words_begin_, words_of(phase));
    return;
  }
  line_.resize(words_begin_);
  line_ += words_of(phase);
  line_ += ' ';
  append_text(line_, operation);
  file_.write(line_);
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
