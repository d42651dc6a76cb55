#include "weft/comm/threads/thread_world.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/threads/thread_group.h"

namespace weft {

std::string ThreadFailure::message() const {
  std::string text = fmt::format("rank {} {} (before that: {})", rank, how, last);
  const bool has_direct = std::any_of(waiting.begin(), waiting.end(), [](const Waiting& w) { return w.is_direct; });
  int num_shown = 0;
  for (const Waiting& one : waiting) {
    if (one.is_direct != has_direct) continue;
    if (++num_shown > 4) return text + ", and more";
    text += fmt::format("{} rank {} waited{} in {}", num_shown == 1 ? ";" : ",", one.rank,
                        one.is_direct ? " for it" : "", weft::text(one.operation));
  }
  return text;
}

ThreadWorld::ThreadWorld(int64_t size, const CommOptions& options)
    : options_(options),
      has_core_per_rank_(size <= static_cast<int64_t>(std::thread::hardware_concurrency())),
      ends_(static_cast<size_t>(size)),
      unlimited_(static_cast<size_t>(size)),
      records_(static_cast<size_t>(size), nullptr) {}

ThreadWorld::~ThreadWorld() = default;

std::shared_ptr<SharedGroup> ThreadWorld::join_group(const std::string& name, const std::vector<int64_t>& ranks,
                                                     int64_t rank) {
  const std::lock_guard lock(mutex_);
  const GroupKey key(name, ranks);
  std::vector<std::shared_ptr<SharedGroup>>& made = groups_[key];
  const size_t index = num_joined_[{key, rank}]++;
  if (index == made.size()) made.push_back(std::make_shared<SharedGroup>(*this, name, ranks));
  return made[index];
}

void ThreadWorld::set_record(int64_t rank, const RankRecord* record) {
  const std::lock_guard lock(mutex_);
  records_[static_cast<size_t>(rank)] = record;
}

void ThreadWorld::leave(int64_t rank) {
  ends_[static_cast<size_t>(rank)] = true;
  ++num_left_;
  wake_all();
}

void ThreadWorld::fail(int64_t rank, std::string how, std::exception_ptr cause) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    const RankRecord* record = records_[static_cast<size_t>(rank)];
    failure_ = {.rank = rank,
                .how = std::move(how),
                .last = record != nullptr ? record->text() : "it had ended",
                .cause = std::move(cause)};
  }
  has_failed_ = true;
  wake_all();
}

void ThreadWorld::add_waiting(const ThreadFailure::Waiting& waiting) {
  const std::lock_guard lock(mutex_);
  failure_->waiting.push_back(waiting);
}

std::optional<ThreadFailure> ThreadWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadWorld::wake_all() {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, groups] : groups_) {
    for (const auto& group : groups) group->wake();
  }
}

ThreadRank::ThreadRank(std::shared_ptr<ThreadWorld> world, int64_t rank)
    : WorldBackend(rank, world->size(), world->options()), world_(std::move(world)) {
  world_->set_record(rank, &record());
}

ThreadRank::~ThreadRank() {
  world_->set_record(rank(), nullptr);
}

std::unique_ptr<GroupBackend> ThreadRank::make_group(const std::string& name, const std::vector<int64_t>& ranks) {
  return std::make_unique<ThreadGroup>(world_, world_->join_group(name, ranks, rank()), rank());
}

void ThreadRank::add_unlimited(int change) {
  WorldBackend::add_unlimited(change);
  world_->set_unlimited(rank(), waits_without_limit());
}

}  // namespace weft
