#include "weft/comm/threads/thread_group.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/threads/thread_world.h"

namespace weft {
namespace {

/// How often a waiting rank looks again before it sleeps: about 20 µs where it has a core, a few turns of the scheduler
/// where it has not.
constexpr int kSpins = 1500;
constexpr int kYields = 8;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

std::optional<std::string> disagreement_of(std::span<const Operation> posted, std::span<const int64_t> ranks) {
  const auto size = static_cast<int64_t>(ranks.size());
  const Operation& first = posted.front();
  if (first.kind == OperationKind::kSend) {
    const Operation& recv = posted[1];
    return find_disagreement(signature_of(first, size), ranks[static_cast<size_t>(recv.peer)], signature_of(recv, size),
                             ranks[static_cast<size_t>(first.peer)]);
  }
  std::vector<Signature> signatures;
  signatures.reserve(posted.size());
  for (const Operation& operation : posted) signatures.push_back(signature_of(operation, size));
  if (auto found = find_disagreement(signatures, ranks)) return found;
  if (first.kind != OperationKind::kAllToAll) return {};
  for (int64_t from = 0; from < size; ++from) {
    for (int64_t to = 0; to < size; ++to) {
      const Operation& sender = posted[static_cast<size_t>(from)];
      const Operation& receiver = posted[static_cast<size_t>(to)];
      if (auto found = find_disagreement(ranks[static_cast<size_t>(from)],
                                         part_of(sender.in.count, sender.in_counts, to, size).size,
                                         ranks[static_cast<size_t>(to)],
                                         part_of(receiver.out.count, receiver.out_counts, from, size).size)) {
        return found;
      }
    }
  }
  return {};
}

/// One rank's part in a meeting.
class ThreadWork : public WorkState {
 public:
  ThreadWork(std::shared_ptr<SharedGroup> group, std::shared_ptr<Meeting> meeting, int64_t world_rank, size_t role,
             std::vector<int64_t> role_ranks, const OperationNote& note)
      : group_(std::move(group)),
        meeting_(std::move(meeting)),
        world_rank_(world_rank),
        role_(role),
        role_ranks_(std::move(role_ranks)),
        note_(note) {}

  bool poll() override {
    if (is_done()) return true;
    if (group_->world().has_failed()) give_up();
    return false;
  }

  void wait() override {
    const bool can_spin = group_->world().has_core_per_rank();
    for (int i = 0; i < (can_spin ? kSpins : kYields); ++i) {
      if (is_done()) return;
      can_spin ? pause_briefly() : std::this_thread::yield();
    }
    const auto deadline = std::chrono::steady_clock::now() + group_->world().options().timeout;
    while (!is_done()) {
      ThreadWorld& world = group_->world();
      if (world.has_failed()) give_up();
      const int64_t num_left = world.num_left();
      if (num_left > 0) blame_who_left();
      group_->sleep_until(deadline, [&] {
        return meeting_->is_settled() || meeting_->has_pieces_left() || world.has_failed() ||
               world.num_left() != num_left;
      });
      if (std::chrono::steady_clock::now() >= deadline && !is_done()) blame_who_is_late();
    }
  }

  void abandon() noexcept override { meeting_->abandon(role_); }

 private:
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
    for (const size_t role : group_->missing(*meeting_, role_ranks_.size())) {
      const int64_t rank = role_ranks_[role];
      if (!group_->world().has_left(rank)) continue;
      group_->world().fail(rank, "returned early");
      give_up();
    }
  }

  [[noreturn]] void blame_who_is_late() {
    const double seconds = std::chrono::duration<double>(group_->world().options().timeout).count();
    const std::vector<size_t> missing = group_->missing(*meeting_, role_ranks_.size());
    if (const auto role = meeting_->abandoned_by()) {
      group_->world().fail(role_ranks_[*role], "abandoned the operation and went on");
    } else if (!missing.empty()) {
      group_->world().fail(role_ranks_[missing.front()], fmt::format("did not come within {:g} s", seconds));
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
    throw RankFailure(fmt::format("rank {} {}; rank {} waited in {}", failure.rank, failure.how, world_rank_,
                                  weft::text(note_)),
                      failure.rank);
  }

  std::shared_ptr<SharedGroup> group_;
  std::shared_ptr<Meeting> meeting_;
  int64_t world_rank_;
  size_t role_;
  std::vector<int64_t> role_ranks_;  ///< in the world
  OperationNote note_;
};

}  // namespace

SharedGroup::SharedGroup(ThreadWorld& world, std::string name, std::vector<int64_t> ranks)
    : world_(world), name_(std::move(name)), ranks_(std::move(ranks)), collectives_(ranks_.size()) {}

std::shared_ptr<Meeting> SharedGroup::post(size_t rank, const Operation& operation) {
  const size_t role = is_collective(operation.kind) ? rank : operation.kind == OperationKind::kSend ? 0 : 1;
  std::shared_ptr<Meeting> meeting;
  {
    const std::lock_guard lock(mutex_);
    MeetingQueue& queue = queue_for(rank, operation);
    meeting = queue.next(role);
    if (!meeting->post(role, operation)) return meeting;
    queue.trim();
  }
  if (auto disagreement = disagreement_of(meeting->posted(), ranks_)) {
    meeting->refuse(*std::move(disagreement));
  } else {
    meeting->make_ready();
    if (meeting->is_small()) meeting->help();
  }
  wake();
  return meeting;
}

MeetingQueue& SharedGroup::queue_for(size_t rank, const Operation& operation) {
  if (is_collective(operation.kind)) return collectives_;
  const auto peer = static_cast<size_t>(operation.peer);
  const auto pair = operation.kind == OperationKind::kSend ? std::pair(rank, peer) : std::pair(peer, rank);
  return messages_.try_emplace(pair, 2).first->second;
}

std::vector<size_t> SharedGroup::missing(const Meeting& meeting, size_t num_roles) {
  const std::lock_guard lock(mutex_);
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
    : world_(std::move(world)), group_(std::move(group)), world_rank_(world_rank) {
  const auto& ranks = group_->ranks();
  rank_ = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), world_rank_) - ranks.begin());
}

std::unique_ptr<WorkState> ThreadGroup::start(const Operation& operation, const OperationNote& note) {
  const auto peer = static_cast<size_t>(std::max<int64_t>(operation.peer, 0));
  size_t role = rank_;
  std::vector<int64_t> role_ranks;
  if (is_collective(operation.kind)) {
    role_ranks = group_->ranks();
  } else {
    role = operation.kind == OperationKind::kSend ? 0 : 1;
    role_ranks = {world_rank_, group_->ranks()[peer]};
    if (role == 1) std::swap(role_ranks[0], role_ranks[1]);
  }
  return std::make_unique<ThreadWork>(group_, group_->post(rank_, operation), world_rank_, role, std::move(role_ranks),
                                      note);
}

}  // namespace weft
