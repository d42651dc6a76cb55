#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "weft/mesh/group_traffic.h"

namespace weft {

/// One rank's operations of all groups, in the order in which they were started, once that was asked for.
class CallLog {
 public:
  bool is_kept() const { return is_kept_.load(std::memory_order_relaxed); }
  void keep() { is_kept_.store(true, std::memory_order_relaxed); }
  void add(GroupCall call);
  std::vector<GroupCall> list() const;

 private:
  std::atomic<bool> is_kept_{false};
  mutable std::mutex guard_;
  std::vector<GroupCall> calls_;
};

/// Counts one rank's operations of one group. Any thread of the rank may start them.
class TrafficCounter {
 public:
  TrafficCounter(std::string name, std::vector<int64_t> ranks, std::shared_ptr<CallLog> log)
      : name_(std::move(name)), ranks_(std::move(ranks)), log_(std::move(log)) {}

  void add(OperationKind kind, const Traffic& bytes) {
    Cell& cell = cells_[static_cast<size_t>(kind)];
    cell.calls.fetch_add(1, std::memory_order_relaxed);
    cell.sent_bytes.fetch_add(bytes.sent, std::memory_order_relaxed);
    cell.received_bytes.fetch_add(bytes.received, std::memory_order_relaxed);
    if (log_->is_kept()) log_->add({.group = name_, .ranks = ranks_, .kind = kind, .bytes = bytes});
  }
  /// Bytes of all operations.
  Traffic total() const;
  void add_to(TrafficList& list) const;

  const std::string& name() const { return name_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }

 private:
  struct Cell {
    std::atomic<int64_t> calls{0};
    std::atomic<int64_t> sent_bytes{0};
    std::atomic<int64_t> received_bytes{0};
  };

  std::string name_;
  std::vector<int64_t> ranks_;
  std::shared_ptr<CallLog> log_;
  std::array<Cell, kNumOperationKinds> cells_;
};

/// All counters of a rank, also of groups that are gone.
class TrafficCounters {
 public:
  std::shared_ptr<TrafficCounter> make(const std::string& name, const std::vector<int64_t>& ranks);
  TrafficList list() const;
  CallLog& log() { return *log_; }

 private:
  mutable std::mutex guard_;
  std::vector<std::shared_ptr<TrafficCounter>> all_;
  std::shared_ptr<CallLog> log_ = std::make_shared<CallLog>();
};

}  // namespace weft
