#include "weft/comm/group.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/world.h"

namespace weft {

Group::Group(std::shared_ptr<WorldBackend> world, const std::string& name, const std::vector<int64_t>& ranks)
    : state_(std::make_shared<State>()) {
  const auto place = std::find(ranks.begin(), ranks.end(), world->rank());
  WEFT_CHECK(place != ranks.end(), "rank {} is not in group '{}'", world->rank(), name);
  state_->rank = place - ranks.begin();
  state_->backend = world->make_group(name, ranks);
  state_->counter = world->counters().make(name, ranks);
  state_->world = std::move(world);
}

Work Group::all_reduce(const ConstBuffer& in, const Buffer& out, Reduction reduction) {
  return start({.kind = OperationKind::kAllReduce, .reduction = reduction, .in = in, .out = out});
}

Work Group::all_gather(const ConstBuffer& in, const Buffer& out, std::vector<int64_t> counts) {
  return start({.kind = OperationKind::kAllGather, .in = in, .out = out, .out_counts = std::move(counts)});
}

Work Group::reduce_scatter(const ConstBuffer& in, const Buffer& out, Reduction reduction, std::vector<int64_t> counts) {
  return start({.kind = OperationKind::kReduceScatter,
                .reduction = reduction,
                .in = in,
                .out = out,
                .in_counts = std::move(counts)});
}

Work Group::all_to_all(const ConstBuffer& in, const Buffer& out, std::vector<int64_t> in_counts,
                       std::vector<int64_t> out_counts) {
  return start({.kind = OperationKind::kAllToAll,
                .in = in,
                .out = out,
                .in_counts = std::move(in_counts),
                .out_counts = std::move(out_counts)});
}

Work Group::broadcast(const Buffer& in_out, int64_t root) {
  return start({.kind = OperationKind::kBroadcast, .in = in_out, .out = in_out, .peer = root});
}

Work Group::send(const ConstBuffer& in, int64_t to) {
  return start({.kind = OperationKind::kSend, .in = in, .peer = to});
}

Work Group::recv(const Buffer& out, int64_t from) {
  return start({.kind = OperationKind::kRecv, .out = out, .peer = from});
}

Work Group::barrier() {
  return start({.kind = OperationKind::kBarrier});
}

void Group::close() {
  if (!state_->is_closed.exchange(true)) state_->backend->close();
}

Work Group::start(const Operation& operation) {
  State& state = *state_;
  if (state.is_closed) refuse(operation, "the group was closed, expected an open one");
  if (const auto mistake = find_mistake(operation, state.rank, size())) refuse(operation, *mistake);
  const Device device = operation.kind == OperationKind::kRecv ? operation.out.device : operation.in.device;
  if (const auto expected = state.backend->refusal_of(device))
    refuse(operation, fmt::format("memory on {}, expected {}", text(device), *expected));
  const OperationNote note(signature_of(operation, size()), ++state.num_operations, name());
  std::unique_ptr<WorkState> started = state.backend->start(operation, note);
  // Written down and counted while the first bytes are on their way.
  state.world->record().note(RankPhase::kStarted, note);
  state.counter->add(operation.kind, traffic_of(operation, state.rank, size()));
  return {std::move(started), state.world->record(), note};
}

void Group::refuse(const Operation& operation, const std::string& mistake) const {
  throw CommMisuse(fmt::format("rank {}, {} of group '{}' (its rank {} of {}): {}", state_->world->rank(),
                               name_of(operation.kind), name(), rank(), size(), mistake));
}

UnlimitedWaits::UnlimitedWaits(const Group& group) : world_(group.state_->world) {
  world_->add_unlimited(1);
}

UnlimitedWaits::~UnlimitedWaits() {
  world_->add_unlimited(-1);
}

}  // namespace weft
