#include "weft/comm/process/process_rank.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <fcntl.h>
#include <stdexcept>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/comm/failure.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char letter : text) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3u;
  return hash;
}

/// Polls without pause, then with the other processes in turn, then ever more rarely: latency where there are cores,
/// and no core burnt where others compute.
class Patience {
 public:
  explicit Patience(bool has_core) : has_core_(has_core) {}

  void moved() { num_idle_ = 0; }
  /// Whether it is time to look at the clock and for news.
  bool pause() {
    ++num_idle_;
    if (num_idle_ < kPolls) {
      // Even with a core for each, two ranks may be on one.
      if (!has_core_ || num_idle_ % 16 == 0) std::this_thread::yield();
      return num_idle_ % 256 == 0;
    }
    const int64_t doublings = std::min<int64_t>((num_idle_ - kPolls) / 8, 5);
    std::this_thread::sleep_for(std::chrono::microseconds(30) * (int64_t{1} << doublings));
    return true;
  }

 private:
  static constexpr int64_t kPolls = 4000;
  bool has_core_;
  int64_t num_idle_ = 0;
};

/// Whether the message is still to be shown. The first process of a host that knows shows it at once, before others
/// hear of it and end: once some have, a launcher may end this one, or not listen any more. The others give it time.
bool must_still_print(ProcessRank& rank, const RunOptions& options, const std::string& message) {
  if (!rank.claim_message()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return false;
  }
  if (options.report) options.report(message);
  return !options.report;
}

/// Tells the user and everyone else. Called while an exception is handled.
[[noreturn]] void fail(ProcessRank& rank, const RunOptions& options) {
  rank.watch().stand_down();
  try {
    throw;
  } catch (const RankFailure& failure) {
    throw RankFailure(failure.what(), failure.rank(), must_still_print(rank, options, failure.what()));
  } catch (...) {
    const RankNews news{.rank = rank.rank(), .how = how_it_failed(std::current_exception())};
    const std::string message = rank.describe(news, rank.who_waits());
    const bool should_print = must_still_print(rank, options, message);
    rank.watch().announce(news);
    std::throw_with_nested(RankFailure(message, rank.rank(), should_print));
  }
}

}  // namespace

RunRecords RunRecords::in(const std::filesystem::path& given, uint64_t run) {
  if (!given.empty()) return {given, run};
  std::error_code problem;
  const std::filesystem::path around = std::filesystem::temp_directory_path(problem);
  return {(problem ? std::filesystem::path("/tmp") : around) / fmt::format("weft-records-{:016x}", run), run};
}

void ProcessRank::start_watch(std::vector<RankConnection> connections,
                              const std::function<void(const std::string&)>& report) {
  watch_ = std::make_unique<Watch>(rank(), std::move(connections),
                                   Watch::Options{.end_process = [this, report](const RankNews& news) {
                                     if (report && claim_message())
                                       report(describe(news, who_waits(std::chrono::milliseconds(0))));
                                     // Whoever speaks is heard: once enough others have ended, the launcher waits for
                                     // nobody.
                                     std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                     std::signal(SIGTERM, SIG_DFL);
                                     kill(getpid(), SIGTERM);
                                   }});
}

uint64_t ProcessRank::new_group_id(const std::string& name, const std::vector<int64_t>& ranks) {
  const std::string label = fmt::format("{} of {}", name, fmt::join(ranks, ","));
  const std::lock_guard lock(mutex_);
  return hash_text(fmt::format("{} {}", label, num_groups_[label]++));
}

std::atomic<uint64_t>& ProcessRank::counter(uint64_t key) {
  const std::lock_guard lock(mutex_);
  return counts_[key];
}

void ProcessRank::look_for_failures(const Awaited& awaited) {
  if (watch_->has_failed()) give_up(*watch_->failure(), awaited.note);
  if (is_halted()) {
    const auto error = complaint();
    give_up(
        {.rank = rank(), .how = error ? fmt::format("failed: {}", *error) : "abandoned an operation and cannot go on"},
        awaited.note);
  }
  if (watch_->num_left() == 0) return;
  for (size_t place = 0; place < awaited.ranks.size(); ++place) {
    if (awaited.ranks[place] == rank() || !awaited.has_part(place)) continue;
    const auto started = watch_->started_by_left(awaited.ranks[place], awaited.key_at(place));
    if (started && *started < awaited.number)
      give_up({.rank = awaited.ranks[place], .how = "returned early"}, awaited.note);
  }
}

void ProcessRank::wait(const Awaited& awaited) {
  Patience patience(has_core_per_rank_);
  std::optional<Clock::time_point> deadline;
  for (;;) {
    const Awaited::Progress progress = awaited.poll();
    if (progress.is_over) return;
    if (progress.has_moved) {
      patience.moved();
      deadline.reset();
      continue;
    }
    if (!patience.pause() && !is_halted()) continue;
    look_for_failures(awaited);
    // At the end of the run ranks wait for each other as long as it takes.
    if (awaited.ranks.empty() || waits_without_limit()) continue;
    const auto now = Clock::now();
    if (!deadline) deadline = now + options().timeout;
    if (now < *deadline) continue;
    const double seconds = std::chrono::duration<double>(options().timeout).count();
    // Who is late cannot be known from here; the records of this host's ranks tell what each does.
    int64_t late = rank();
    for (size_t place = 0; place < awaited.ranks.size(); ++place) {
      const int64_t other = awaited.ranks[place];
      if (other == rank() || !awaited.has_part(place)) continue;
      const auto line = read_record(records_.folder, other);
      if (!line) continue;
      if (late == rank() || line->find(": awaiting ") == std::string::npos) late = other;
    }
    give_up({.rank = late, .how = fmt::format("did not come within {:g} s", seconds)}, awaited.note);
  }
}

void ProcessRank::give_up(const RankNews& news, const OperationNote& note) {
  halt();
  const std::string message = describe(news, fmt::format("rank {} waited for it in {}", rank(), text(note)));
  if (!watch_->has_failed()) watch_->announce(news);
  throw RankFailure(message, news.rank);
}

std::string ProcessRank::describe(const RankNews& news, const std::string& waiting) const {
  const auto line = read_record(records_.folder, news.rank);
  return fmt::format("rank {} {}; {}. Its record: {}. All records: {}", news.rank, news.how, waiting,
                     line.value_or("not on this host"), records_.folder.string());
}

void ProcessRank::leave() {
  if (is_halted() && !watch_->has_failed()) {
    const auto error = complaint();
    const RankNews news{
        .rank = rank(),
        .how = error ? fmt::format("failed: {}", *error) : "returned early, in the middle of operations"};
    const std::string message = describe(news, who_waits());
    watch_->announce(news);
    throw RankFailure(message, rank());
  }
  {
    const std::lock_guard lock(mutex_);
    watch_->leave(OperationCounts(counts_.begin(), counts_.end()));
  }
  const OperationNote note({}, 0, "the end of the run");
  record().note(RankPhase::kWaiting, note);
  meet_at_end(note);
  watch_->say_goodbye();
}

void ProcessRank::meet_at_end(const OperationNote& note) {
  wait({.note = note,
        .ranks = {},
        .key_at = [](size_t) { return 0; },
        .number = 0,
        .poll = [this] { return Awaited::Progress{.is_over = watch_->num_left() == size()}; }});
}

std::string ProcessRank::who_waits(std::chrono::milliseconds patience) const {
  constexpr std::string_view kWaiting = ": awaiting ";
  const auto until = Clock::now() + patience;
  for (;;) {
    std::string found;
    int num_found = 0;
    for (int64_t other = 0; other < size(); ++other) {
      const auto line = read_record(records_.folder, other);
      const size_t at = line ? line->find(kWaiting) : std::string::npos;
      if (other == rank() || at == std::string::npos) continue;
      if (++num_found > 4) return found + ", and more";
      const std::string operation = line->substr(at + kWaiting.size());
      found += fmt::format("{}rank {} waited in {}", found.empty() ? "" : ", ", other, operation);
    }
    if (!found.empty()) return found;
    if (Clock::now() > until) return "no other rank of this host waited";
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool ProcessRank::claim_message() {
  const std::filesystem::path path = records_.folder / fmt::format("told-{:016x}", records_.run);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  // Where nothing can be written, those speak who have heard of no failure.
  if (file < 0) return errno != EEXIST && !watch_->has_failed();
  close(file);
  return true;
}

uint64_t operation_key(uint64_t group_id, OperationKind kind, int64_t peer, size_t own, size_t place) {
  if (is_collective(kind)) return group_id;
  // The rank itself counts what it sends or receives; its peer the other side of the same messages.
  const bool sends = (kind == OperationKind::kSend) == (place == own);
  const size_t other = place == own ? static_cast<size_t>(peer) : own;
  return (group_id ^ (other * 2 + (sends ? 1 : 0) + 1) * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
}

void run_process_rank(const std::shared_ptr<ProcessRank>& rank, const RunOptions& options,
                      const std::function<void(World&)>& body) {
  const std::filesystem::path folder = rank->records().folder;
  try {
    if (const auto error = rank->record().keep_in(folder)) throw std::runtime_error(error->message());
    World world(rank);
    body(world);
    rank->leave();
  } catch (...) {
    fail(*rank, options);
  }
  rank->record().remove_file();
  std::error_code not_empty;
  if (options.comm.records.empty()) std::filesystem::remove(folder, not_empty);  // by a host's last rank
}

}  // namespace weft
