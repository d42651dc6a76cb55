#include "weft/comm/mpi/mpi_world.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/comm/failure.h"
#include "weft/comm/mpi/mpi_group.h"

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

int tag_limit(MPI_Comm comm) {
  int* limit = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&limit), &is_set);
  return is_set != 0 ? *limit : 32767;
}

}  // namespace

MpiRank::MpiRank(int64_t rank, int64_t size, const CommOptions& options, const MpiTuning& tuning, Records records,
                 const std::function<void(const std::string&)>& report)
    : WorldBackend(rank, size, options), tuning_(tuning), records_(std::move(records)) {
  MPI_Comm host_comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(world_comm_, MPI_ERRORS_RETURN);
  check_mpi(MPI_Comm_split_type(world_comm_, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_comm),
            "MPI_Comm_split_type");
  int num_local = 1, fewest_local = 1;
  MPI_Comm_size(host_comm, &num_local);
  MPI_Comm_free(&host_comm);
  check_mpi(MPI_Allreduce(&num_local, &fewest_local, 1, MPI_INT, MPI_MIN, world_comm_), "MPI_Allreduce");
  has_core_per_rank_ = num_local <= static_cast<int>(std::thread::hardware_concurrency());
  tags_ = tag_limit(world_comm_) / 4;
  watch_ = std::make_unique<Watch>(world_comm_, fewest_local == size,
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

MpiRank::~MpiRank() {
  engine_.halt();
}

uint64_t MpiRank::count(uint64_t key) {
  return ++counts_[key];
}

std::unique_ptr<GroupBackend> MpiRank::make_group(const std::string& name, const std::vector<int64_t>& ranks) {
  const std::string label = fmt::format("{} of {}", name, fmt::join(ranks, ","));
  const uint64_t id = hash_text(fmt::format("{} {}", label, num_groups_[label]++));
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  MpiChannel channel{.comm = world_comm_,
                     .rank = place,
                     .size = static_cast<int>(ranks.size()),
                     .tags = tags_,
                     .tuning = tuning_,
                     .scratch = &scratch_,
                     .num_sent = std::vector<uint64_t>(ranks.size(), 0),
                     .num_received = std::vector<uint64_t>(ranks.size(), 0)};
  // Making a communicator cannot be interrupted. So all first meet in a way that can, and what follows is short.
  if (ranks.size() > 1 && !engine_.is_halted()) {
    const OperationNote note({}, 0, name);
    record().note(RankPhase::kWaiting, note);
    const auto meeting = std::make_shared<MpiOperation>();
    const int tag = 3 * tags_ + static_cast<int>(id % static_cast<uint64_t>(tags_));
    meeting->add_chain({[this, &ranks, tag](MpiRequests& requests) {
      for (const int64_t member : ranks) {
        const auto peer = static_cast<int>(member);
        if (peer == rank()) continue;
        check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests.emplace_back()), "MPI_Isend");
        check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests.emplace_back()), "MPI_Irecv");
      }
    }});
    uint64_t number = 0;
    {
      const auto lock = engine_.lock();
      number = count(id ^ 1);
    }
    engine_.start(meeting);
    wait(
        *meeting, note, ranks, [id](size_t) { return id ^ 1; }, number);
    const auto lock = engine_.lock();
    std::vector<int> members(ranks.begin(), ranks.end());
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &channel.comm), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(channel.comm, MPI_ERRORS_RETURN);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    record().note(RankPhase::kFinished, note);
  } else {
    const auto lock = engine_.lock();
    check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &channel.comm), "MPI_Comm_dup");
  }
  return std::make_unique<MpiGroup>(*this, std::move(channel), ranks, id);
}

void MpiRank::wait(const MpiOperation& operation, const OperationNote& note, const std::vector<int64_t>& ranks,
                   const std::function<uint64_t(size_t)>& key_at, uint64_t number) {
  const MpiEngine::Waiter waiter(engine_);
  Patience patience(has_core_per_rank_);
  std::optional<Clock::time_point> deadline;
  for (;;) {
    const MpiEngine::Progress progress = engine_.poll(&operation);
    if (progress.is_over) return;
    if (progress.has_moved) {
      patience.moved();
      deadline.reset();
      continue;
    }
    if (!patience.pause() && !engine_.is_halted()) continue;
    if (watch_->has_failed()) give_up(*watch_->failure(), note);
    if (engine_.is_halted()) {
      const auto error = engine_.error();
      give_up({.rank = rank(),
               .how = error ? fmt::format("failed: {}", *error) : "abandoned an operation and cannot go on"},
              note);
    }
    if (watch_->num_left() > 0) {
      for (size_t place = 0; place < ranks.size(); ++place) {
        if (ranks[place] == rank()) continue;
        const auto started = watch_->started_by_left(ranks[place], key_at(place));
        if (started && *started < number) give_up({.rank = ranks[place], .how = "returned early"}, note);
      }
    }
    // At the end of the run ranks wait for each other as long as it takes.
    if (ranks.empty()) continue;
    const auto now = Clock::now();
    if (!deadline) deadline = now + options().timeout;
    if (now < *deadline) continue;
    const double seconds = std::chrono::duration<double>(options().timeout).count();
    // Who is late cannot be known from here; the records of this host's ranks tell what each does.
    int64_t late = rank();
    for (const int64_t other : ranks) {
      const auto line = read_record(records_.folder, other);
      if (other == rank() || !line) continue;
      if (late == rank() || line->find(": awaiting ") == std::string::npos) late = other;
    }
    give_up({.rank = late, .how = fmt::format("did not come within {:g} s", seconds)}, note);
  }
}

void MpiRank::give_up(const RankNews& news, const OperationNote& note) {
  engine_.halt();
  const std::string message = describe(news, fmt::format("rank {} waited for it in {}", rank(), text(note)));
  if (!watch_->has_failed()) watch_->announce(news);
  throw RankFailure(message, news.rank);
}

std::string MpiRank::describe(const RankNews& news, const std::string& waiting) const {
  const auto line = read_record(records_.folder, news.rank);
  return fmt::format("rank {} {}; {}. Its record: {}. All records: {}", news.rank, news.how, waiting,
                     line.value_or("not on this host"), records_.folder.string());
}

void MpiRank::leave() {
  if (engine_.is_halted() && !watch_->has_failed()) {
    const auto error = engine_.error();
    const RankNews news{
        .rank = rank(),
        .how = error ? fmt::format("failed: {}", *error) : "returned early, in the middle of operations"};
    const std::string message = describe(news, who_waits());
    watch_->announce(news);
    throw RankFailure(message, rank());
  }
  {
    const auto lock = engine_.lock();
    watch_->leave(counts_);
  }
  const OperationNote note({}, 0, "the end of the run");
  record().note(RankPhase::kWaiting, note);
  const auto meeting = std::make_shared<MpiOperation>();
  meeting->add_chain({[this](MpiRequests& requests) {
    check_mpi(MPI_Ibarrier(world_comm_, &requests.emplace_back()), "MPI_Ibarrier");
  }});
  engine_.start(meeting);
  wait(
      *meeting, note, {}, [](size_t) { return 0; }, 0);
  watch_->say_goodbye();
  engine_.halt();
}

std::string MpiRank::who_waits(std::chrono::milliseconds patience) const {
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

bool MpiRank::claim_message() {
  const std::filesystem::path path = records_.folder / fmt::format("told-{:016x}", records_.run);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  // Where nothing can be written, those speak who have heard of no failure.
  if (file < 0) return errno != EEXIST && !watch_->has_failed();
  close(file);
  return true;
}

}  // namespace weft
