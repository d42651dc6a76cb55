#include "weft/comm/threads/thread_group.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/threads/thread_world.h"

namespace weft {
namespace {

/// How often a waiting rank looks again before it sleeps: about 30 µs where every rank has a core, a few turns of the
/// scheduler where not. Even with a core for each, two ranks may be on one: then only yielding lets the other come.
constexpr int kSpins = 20;
constexpr int kYieldsWithCore = 60;
constexpr int kYields = 8;

/// Longer than any run.
constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 365);

/// How long a rank that abandoned an operation may take to say why, before that alone is the reason.
constexpr auto kReasonPatience = std::chrono::seconds(1);

std::optional<std::string> disagreement_of(std::span<const Operation> posted, std::span<const int64_t> ranks) {
  const auto size = static_cast<int64_t>(ranks.size());
  const Operation& first = posted.front();
  if (first.kind == OperationKind::kSend) {
    const Operation& recv = posted[1];
    return find_mismatch(signature_of(first, size), ranks[static_cast<size_t>(recv.peer)], signature_of(recv, size),
                         ranks[static_cast<size_t>(first.peer)]);
  }
  const Signature expected = signature_of(first, size);
  for (size_t r = 1; r < posted.size(); ++r) {
    if (auto found = find_disagreement(expected, ranks[0], signature_of(posted[r], size), ranks[r])) return found;
  }
  if (first.kind != OperationKind::kAllToAll) return {};
  for (int64_t from = 0; from < size; ++from) {
    for (int64_t to = 0; to < size; ++to) {
      const Operation& sender = posted[static_cast<size_t>(from)];
      const Operation& receiver = posted[static_cast<size_t>(to)];
      if (auto found = find_mismatch(
              ranks[static_cast<size_t>(from)], part_of(sender.in.count, sender.in_counts, to, size).size,
              ranks[static_cast<size_t>(to)], part_of(receiver.out.count, receiver.out_counts, from, size).size)) {
        return found;
      }
    }
  }
  return {};
}

/// One rank's part in a meeting.
class ThreadWork : public WorkState {
 public:
  ThreadWork(std::shared_ptr<SharedGroup> group, Meeting& meeting, int64_t world_rank, size_t role,
             std::vector<int64_t> pair, const OperationNote& note)
      : group_(std::move(group)),
        meeting_(&meeting),
        world_rank_(world_rank),
        role_(role),
        pair_(std::move(pair)),
        note_(note) {}
  ~ThreadWork() override { group_->release(*meeting_); }
  ThreadWork(const ThreadWork&) = delete;
  ThreadWork& operator=(const ThreadWork&) = delete;

  bool poll() override {
    if (is_done()) return true;
    if (group_->world().has_failed()) give_up();
    return false;
  }

  void wait() override {
    const bool can_spin = group_->world().has_core_per_rank();
    const int num_spins = can_spin ? kSpins : 0, num_yields = can_spin ? kYieldsWithCore : kYields;
    for (int i = 0; i < num_spins + num_yields; ++i) {
      if (meeting_->state() != Meeting::State::kGathering && is_done()) return;
      i < num_spins ? pause_briefly() : std::this_thread::yield();
    }
    auto deadline = std::chrono::steady_clock::now() + limit();
    while (!is_done()) {
      ThreadWorld& world = group_->world();
      if (world.has_failed()) give_up();
      const int64_t num_left = world.num_left();
      if (num_left > 0) blame_who_left();
      const bool is_abandoned = meeting_->is_abandoned();
      // Usually an exception passes through the rank that abandoned it, and the reason is about to come.
      if (is_abandoned) deadline = std::min(deadline, std::chrono::steady_clock::now() + kReasonPatience);
      group_->sleep_until(deadline, [&] {
        return meeting_->is_settled() || meeting_->has_pieces_left() || world.has_failed() ||
               world.num_left() != num_left || meeting_->is_abandoned() != is_abandoned;
      });
      if (std::chrono::steady_clock::now() >= deadline && !is_done()) blame_who_is_late();
    }
  }

  void abandon() noexcept override {
    meeting_->abandon(role_);
    group_->wake();
  }

 private:
  std::chrono::milliseconds limit() const {
    const ThreadWorld& world = group_->world();
    return world.waits_without_limit(world_rank_) ? kNoLimit : world.options().timeout;
  }

  /// By role, in the world.
  const std::vector<int64_t>& role_ranks() const { return pair_.empty() ? group_->ranks() : pair_; }

  bool is_done() {
    if (meeting_->help()) group_->wake();
    const Meeting::State state = meeting_->state();
    if (state == Meeting::State::kRefused) {
      throw RanksDisagree(fmt::format("the ranks of group '{}' disagree on operation {}: {}", group_->name(),
                                      note_.number, meeting_->disagreement()));
    }
    return state == Meeting::State::kDone;
  }

  void blame_who_left() {
    std::vector<size_t> absent = group_->missing(*meeting_, role_ranks().size());
    if (const auto role = meeting_->abandoned_by()) absent.push_back(*role);
    for (const size_t role : absent) {
      const int64_t rank = role_ranks()[role];
      if (!group_->world().has_left(rank)) continue;
      group_->world().fail(rank, "returned early");
      give_up();
    }
  }

  [[noreturn]] void blame_who_is_late() {
    const double seconds = std::chrono::duration<double>(group_->world().options().timeout).count();
    const std::vector<size_t> missing = group_->missing(*meeting_, role_ranks().size());
    if (const auto role = meeting_->abandoned_by()) {
      group_->world().fail(role_ranks()[*role], "abandoned the operation and went on");
    } else if (!missing.empty()) {
      group_->world().fail(role_ranks()[missing.front()], fmt::format("did not come within {:g} s", seconds));
    } else {
      group_->world().fail(world_rank_, fmt::format("was not done within {:g} s", seconds));
    }
    give_up();
  }

  [[noreturn]] void give_up() {
    meeting_->abandon(role_);
    ThreadWorld& world = group_->world();
    const ThreadFailure failure = *world.failure();
    const auto& ranks = group_->ranks();
    const bool is_direct = std::find(ranks.begin(), ranks.end(), failure.rank) != ranks.end();
    if (failure.rank != world_rank_) world.add_waiting({world_rank_, is_direct, note_});
    throw RankFailure(
        fmt::format("rank {} {}; rank {} waited in {}", failure.rank, failure.how, world_rank_, weft::text(note_)),
        failure.rank);
  }

  std::shared_ptr<SharedGroup> group_;
  Meeting* meeting_;  ///< the group's
  int64_t world_rank_;
  size_t role_;
  std::vector<int64_t> pair_;  ///< a message's sender and receiver in the world; empty for a collective
  OperationNote note_;
};

}  // namespace

SharedGroup::SharedGroup(ThreadWorld& world, std::string name, std::vector<int64_t> ranks)
    : world_(world), name_(std::move(name)), ranks_(std::move(ranks)), collectives_(ranks_.size()) {}

Meeting& SharedGroup::post(size_t rank, const Operation& operation) {
  const size_t role = is_collective(operation.kind) ? rank : operation.kind == OperationKind::kSend ? 0 : 1;
  Meeting* meeting = nullptr;
  {
    const std::lock_guard lock(lock_);
    MeetingQueue& queue = queue_for(rank, operation);
    meeting = &queue.next(role, pool_);
    if (!meeting->post(role, operation)) return *meeting;
    queue.trim();
  }
  if (auto disagreement = disagreement_of(meeting->posted(), ranks_)) {
    meeting->refuse(*std::move(disagreement));
  } else {
    meeting->make_ready();
    if (meeting->is_small(world_.has_core_per_rank())) meeting->help();
  }
  wake();
  return *meeting;
}

void SharedGroup::release(Meeting& meeting) {
  if (!meeting.release()) return;
  const std::lock_guard lock(lock_);
  pool_.give(meeting);
}

MeetingQueue& SharedGroup::queue_for(size_t rank, const Operation& operation) {
  if (is_collective(operation.kind)) return collectives_;
  const auto peer = static_cast<size_t>(operation.peer);
  const auto pair = operation.kind == OperationKind::kSend ? std::pair(rank, peer) : std::pair(peer, rank);
  return messages_.try_emplace(pair, 2).first->second;
}

std::vector<size_t> SharedGroup::missing(const Meeting& meeting, size_t num_roles) {
  const std::lock_guard lock(lock_);
  std::vector<size_t> roles;
  for (size_t role = 0; role < num_roles; ++role) {
    if (!meeting.has_posted(role)) roles.push_back(role);
  }
  return roles;
}

void SharedGroup::wake() {
  if (num_sleepers_.load() == 0) return;
  // Whoever is between looking and sleeping holds this; afterwards the notification reaches them.
  { const std::lock_guard lock(sleep_mutex_); }
  wake_.notify_all();
}

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::shared_ptr<SharedGroup> group, int64_t world_rank)
    : world_(std::move(world)),
      group_(std::move(group)),
      world_rank_(world_rank),
      own_copies_(std::make_shared<OwnCopies>(world_->options())) {
  const auto& ranks = group_->ranks();
  rank_ = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), world_rank_) - ranks.begin());
}

std::optional<std::string> ThreadGroup::refusal_of(Device device) const {
  if (device.kind == DeviceKind::kCpu) return {};
  // LibTorch runs a device's backward on one thread, where two ranks of a process would wait for each other.
  if (group_->ranks().size() > 1)
    return "memory on cpu: with several ranks on GPUs, each is a process of its own, as mpirun starts them";
  return device.index >= 0 && device.index < num_gpus() ? std::nullopt : std::optional(memory_of_gpus_text());
}

std::unique_ptr<WorkState> ThreadGroup::start(const Operation& operation, const OperationNote& note) {
  const Device device = operation.kind == OperationKind::kRecv ? operation.out.device : operation.in.device;
  if (device.kind == DeviceKind::kCuda) return own_copies_->start(operation);
  const auto peer = static_cast<size_t>(std::max<int64_t>(operation.peer, 0));
  size_t role = rank_;
  std::vector<int64_t> pair;
  if (!is_collective(operation.kind)) {
    role = operation.kind == OperationKind::kSend ? 0 : 1;
    pair = {world_rank_, group_->ranks()[peer]};
    if (role == 1) std::swap(pair[0], pair[1]);
  }
  return std::make_unique<ThreadWork>(group_, group_->post(rank_, operation), world_rank_, role, std::move(pair), note);
}

}  // namespace weft
