#pragma once

#include <memory>
#include <utility>

#include "weft/comm/rank_record.h"

namespace weft {

/// A backend's side of one started operation.
class WorkState {
 public:
  virtual ~WorkState() = default;
  /// Whether it is done; moves it on if it can without waiting. Throws as wait does.
  virtual bool poll() = 0;
  /// Returns when the buffers may be used again, or throws RankFailure or RanksDisagree. After a throw, too, nobody
  /// touches the buffers any more.
  virtual void wait() = 0;
  /// Leaves the operation undone and returns when nobody touches the buffers any more.
  virtual void abandon() noexcept = 0;
};

/// One started operation: its buffers belong to it until it has been waited for. Dropping it before that abandons the
/// operation, on which the other ranks then fail; that is what happens when an exception passes through.
class [[nodiscard]] Work {
 public:
  Work(std::unique_ptr<WorkState> state, RankRecord& record, const OperationNote& note)
      : state_(std::move(state)), record_(&record), note_(note) {}
  Work(Work&&) = default;
  Work& operator=(Work&& other) noexcept;
  ~Work() { drop(); }

  /// Waiting again does nothing.
  void wait();
  bool is_done();

 private:
  void drop() noexcept;

  std::unique_ptr<WorkState> state_;  ///< null when it has been waited for
  RankRecord* record_;
  OperationNote note_;
};

}  // namespace weft
