#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/world.h"

namespace weft {

class SharedGroup;

/// Why a run of thread ranks cannot go on: the first rank that failed, and who waited for it.
struct ThreadFailure {
  int64_t rank = 0;
  std::string how;           ///< completes "rank 2 ..."
  std::string last;          ///< what the rank did last
  std::exception_ptr cause;  ///< what it threw, if it did

  struct Waiting {
    int64_t rank = 0;
    bool is_direct = false;  ///< in a group that the failed rank is in
    OperationNote operation;
  };
  std::vector<Waiting> waiting;

  /// One line with all of this.
  std::string message() const;
};

/// What thread ranks share.
class ThreadWorld {
 public:
  ThreadWorld(int64_t size, const CommOptions& options);
  ~ThreadWorld();

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  const CommOptions& options() const { return options_; }
  /// Whether every rank has a core, so that waiting by spinning takes nothing from anyone.
  bool has_core_per_rank() const { return has_core_per_rank_; }

  /// The group that this rank's call and those of the other ranks with the same name and ranks are about.
  std::shared_ptr<SharedGroup> join_group(const std::string& name, const std::vector<int64_t>& ranks, int64_t rank);

  /// Whether a rank waits for others as long as it takes.
  void set_unlimited(int64_t rank, bool is_unlimited) { unlimited_[static_cast<size_t>(rank)] = is_unlimited; }
  bool waits_without_limit(int64_t rank) const { return unlimited_[static_cast<size_t>(rank)].load(); }

  /// Records are the ranks' own; here they are found for messages.
  void set_record(int64_t rank, const RankRecord* record);

  // How ranks end.
  void leave(int64_t rank);
  bool has_left(int64_t rank) const { return ends_[static_cast<size_t>(rank)].load(); }
  int64_t num_left() const { return num_left_.load(); }
  /// The first failure counts; later ones are its consequences.
  void fail(int64_t rank, std::string how, std::exception_ptr cause = nullptr);
  bool has_failed() const { return has_failed_.load(); }
  /// A rank found out that it waits in vain.
  void add_waiting(const ThreadFailure::Waiting& waiting);
  std::optional<ThreadFailure> failure() const;

 private:
  void wake_all();

  CommOptions options_;
  bool has_core_per_rank_;
  std::vector<std::atomic<bool>> ends_;
  std::vector<std::atomic<bool>> unlimited_;
  std::atomic<int64_t> num_left_{0};
  std::atomic<bool> has_failed_{false};

  mutable std::mutex mutex_;
  std::optional<ThreadFailure> failure_;
  std::vector<const RankRecord*> records_;
  using GroupKey = std::pair<std::string, std::vector<int64_t>>;
  std::map<GroupKey, std::vector<std::shared_ptr<SharedGroup>>> groups_;  ///< those of one key in order of making
  std::map<std::pair<GroupKey, int64_t>, size_t> num_joined_;             ///< by key and rank
};

/// One thread's end of it.
class ThreadRank : public WorldBackend {
 public:
  ThreadRank(std::shared_ptr<ThreadWorld> world, int64_t rank);
  ~ThreadRank() override;

  std::string_view backend_name() const override { return "threads"; }
  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) override;
  void add_unlimited(int change) override;

 private:
  std::shared_ptr<ThreadWorld> world_;
};

}  // namespace weft
