#include "weft/comm/traffic_counter.h"

namespace weft {

void CallLog::add(GroupCall call) {
  const std::lock_guard lock(guard_);
  calls_.push_back(std::move(call));
}

std::vector<GroupCall> CallLog::list() const {
  const std::lock_guard lock(guard_);
  return calls_;
}

Traffic TrafficCounter::total() const {
  Traffic sum;
  for (const Cell& cell : cells_) sum += {cell.sent_bytes, cell.received_bytes};
  return sum;
}

void TrafficCounter::add_to(TrafficList& list) const {
  GroupTraffic& group = list.of(name_, ranks_);
  for (size_t kind = 0; kind < cells_.size(); ++kind) {
    const Cell& cell = cells_[kind];
    group.operations[kind] += {.calls = cell.calls, .bytes = {cell.sent_bytes, cell.received_bytes}};
  }
}

std::shared_ptr<TrafficCounter> TrafficCounters::make(const std::string& name, const std::vector<int64_t>& ranks) {
  const std::lock_guard lock(guard_);
  return all_.emplace_back(std::make_shared<TrafficCounter>(name, ranks, log_));
}

TrafficList TrafficCounters::list() const {
  const std::lock_guard lock(guard_);
  TrafficList list;
  for (const auto& counter : all_) counter->add_to(list);
  return list;
}

}  // namespace weft
