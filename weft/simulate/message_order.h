#pragma once

#include <functional>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// What rows know of each other in a lowered schedule: when a rank can be sure that what it sent was taken.
class MessageOrder {
 public:
  /// `is_sent`: whether a transfer has anything to carry.
  MessageOrder(const Schedule& schedule, const std::function<bool(const Action&)>& is_sent);

  /// Of the transfer that is action `sent` of a row: the row's first action before which it has surely been taken, by
  /// a chain of messages from who took it; the row's length where there is no such chain.
  size_t taken_before(size_t row, size_t sent) const { return taken_before_[row][sent]; }

 private:
  std::vector<std::vector<size_t>> taken_before_;
};

}  // namespace weft
