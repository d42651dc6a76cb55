#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/cuda/own_copies.h"
#include "weft/comm/group.h"
#include "weft/comm/threads/meeting.h"
#include "weft/comm/threads/short_lock.h"

namespace weft {

class ThreadWorld;

/// What the thread ranks of one group share: their meetings, and where they sleep while they wait.
class SharedGroup {
 public:
  SharedGroup(ThreadWorld& world, std::string name, std::vector<int64_t> ranks);

  const std::string& name() const { return name_; }
  /// By place in the group.
  const std::vector<int64_t>& ranks() const { return ranks_; }
  ThreadWorld& world() const { return world_; }

  /// A rank of the group comes to its next meeting of this kind. The last one to come makes it ready.
  Meeting& post(size_t rank, const Operation& operation);
  /// One who came to it has no more to do with it.
  void release(Meeting& meeting);
  /// Which of a meeting's roles have not come yet.
  std::vector<size_t> missing(const Meeting& meeting, size_t num_roles);

  /// Wakes all sleepers to look again.
  void wake();
  template <typename Predicate>
  void sleep_until(std::chrono::steady_clock::time_point deadline, const Predicate& predicate) {
    std::unique_lock lock(sleep_mutex_);
    ++num_sleepers_;
    wake_.wait_until(lock, deadline, predicate);
    --num_sleepers_;
  }

 private:
  MeetingQueue& queue_for(size_t rank, const Operation& operation);

  ThreadWorld& world_;
  std::string name_;
  std::vector<int64_t> ranks_;

  ShortLock lock_;
  MeetingPool pool_;
  MeetingQueue collectives_;
  std::map<std::pair<size_t, size_t>, MeetingQueue> messages_;  ///< by sender and receiver

  std::mutex sleep_mutex_;
  std::condition_variable wake_;
  std::atomic<int> num_sleepers_{0};
};

/// One thread rank's end of a group.
class ThreadGroup : public GroupBackend {
 public:
  ThreadGroup(std::shared_ptr<ThreadWorld> world, std::shared_ptr<SharedGroup> group, int64_t world_rank);

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  std::optional<std::string> refusal_of(Device device) const override;

 private:
  std::shared_ptr<ThreadWorld> world_;
  std::shared_ptr<SharedGroup> group_;
  int64_t world_rank_;
  size_t rank_;
  std::shared_ptr<OwnCopies> own_copies_;  ///< of GPU memory
};

}  // namespace weft
