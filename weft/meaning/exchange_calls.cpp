#include "weft/meaning/exchange_calls.h"

#include <algorithm>

#include "weft/meaning/group_names.h"
#include "weft/mesh/context_blocks.h"
#include "weft/mesh/head_share.h"
#include "weft/mesh/split.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

constexpr int64_t kNumberBytes = 8;

/// What is sent instead of received, and the other way round.
Traffic opposite(const Traffic& way) {
  return {.sent = way.received, .received = way.sent};
}

}  // namespace

OperationKind operation_of(StepKind kind) {
  switch (kind) {
    case StepKind::kAllGather:
      return OperationKind::kAllGather;
    case StepKind::kReduceScatter:
      return OperationKind::kReduceScatter;
    case StepKind::kAllReduce:
      return OperationKind::kAllReduce;
    default:
      return OperationKind::kAllToAll;
  }
}

Range ModulePlace::rows_between(int64_t rows) const {
  if (!divides_rows()) return {0, rows};
  return Split(rows, {tensor.size()}).part(tensor.rank);
}

std::optional<ModulePlace> place_on(const Plan& plan, size_t module, int64_t rank) {
  std::optional<RankGroups> groups = rank_groups(plan, module, rank);
  if (!groups) return std::nullopt;
  const auto named = [&](const char* name, const std::vector<int64_t>& ranks) {
    return named_group(name, ranks, rank);
  };
  ModulePlace place{.plan = &plan.modules[module],
                    .spec = plan.model.find(plan.modules[module].kind),
                    .groups = {},
                    .tensor = named(group_names::kTensor, groups->tensor),
                    .context = named(group_names::kContext, groups->context),
                    .ulysses = named(group_names::kUlysses, groups->ulysses),
                    .ring = named(group_names::kRing, groups->ring),
                    .data = named(group_names::kData, groups->data),
                    .pipeline = named(group_names::kPipeline, groups->pipeline),
                    .balance = groups->balance == groups->context ? named(group_names::kContext, groups->context)
                                                                  : named(group_names::kBalance, groups->balance),
                    .routed = named(group_names::kData, groups->routed),
                    .experts = named(group_names::kExperts, groups->experts),
                    .same_experts = named(group_names::kSameExperts, groups->same_experts),
                    .same_keys = named(group_names::kSameKeys, groups->same_keys),
                    .tied_ends = named(group_names::kTiedEnds, groups->tied_ends)};
  place.groups = *std::move(groups);
  return place;
}

void ExchangeCalls::add_change(RowChange change, int64_t rows, int64_t columns, bool goes_back, CallList& calls) const {
  const RankGroup& group = place_.tensor;
  if (group.size() == 1) return;
  const AxisGrid grid = *AxisGrid::create({{"tp", group.size()}});
  const RowStates states = states_of(change, place_.divides_rows());
  const auto layout = [&](AxisState state) { return *Layout::create(grid, {rows, columns}, {state}); };
  const Transition transition = plan_transition(layout(states.from), layout(states.to));
  for (const Step& step : goes_back ? transition.adjoint : transition.forward) {
    if (is_collective(step.kind)) calls.add(group, operation_of(step.kind), traffic_of(step, group.rank), bytes_);
  }
}

void ExchangeCalls::add(const BlockExchange& exchange, const Block& block, const SharedRows& rows,
                        const Traffic& expert_rows, CallList& calls) const {
  const auto experts = [&] { return std::get<Matmul>(block.ops[exchange.op].shape).out; };  // of a router
  switch (exchange.kind) {
    case ExchangeKind::kRows:
      return add_change(exchange.change, exchange.has_outputs ? rows.outside : rows.inside, exchange.columns,
                        exchange.goes_back, calls);
    case ExchangeKind::kLoss: {
      const int64_t loss_bytes = std::max<int64_t>(4, bytes_);
      for (int i = 0; i < 3; ++i) calls.all_reduce(place_.tensor, rows.targets, loss_bytes);
      return;
    }
    case ExchangeKind::kHeads:
    case ExchangeKind::kKeys: {
      const auto& a = std::get<Attention>(block.ops[exchange.op].shape);
      const HeadShare own = share_of_heads({a.heads, a.kv_heads, a.head_dim}, place_.tensor.size(), place_.tensor.rank);
      return add_attention(exchange, a, {own.num_heads, own.num_kv_heads, a.head_dim}, rows, calls);
    }
    case ExchangeKind::kBalance:
      return calls.all_reduce(place_.balance, experts() + 1, kNumberBytes);
    case ExchangeKind::kExpertCounts: {
      const int64_t elsewhere = experts() - experts() / place_.experts.size();
      return calls.add(place_.experts, OperationKind::kAllToAll, {elsewhere, elsewhere}, kNumberBytes);
    }
    case ExchangeKind::kExpertRows: {
      const Traffic way = exchange.goes_back ? opposite(expert_rows) : expert_rows;
      return calls.add(place_.experts, OperationKind::kAllToAll, way.in_bytes(place_.spec->width), bytes_);
    }
    case ExchangeKind::kMediaRows:
      return exchange.goes_back ? add_media(rows.needed, rows.made, exchange.columns, calls)
                                : add_media(rows.made, rows.needed, exchange.columns, calls);
  }
}

void ExchangeCalls::add_attention(const BlockExchange& exchange, const Attention& a, const HeadCounts& heads,
                                  const SharedRows& rows, CallList& calls) const {
  const RankGroup &context = place_.context, &group = place_.ulysses;
  const bool has_windows = a.mask == Mask::kWindowed && rows.windows.num_rows() > 0;
  const PackedSegments& segments = has_windows ? rows.windows : rows.segments;
  const int64_t ulysses = group.size();
  const UlyssesRows held = ulysses_rows(rows.deal, segments, ulysses, context.rank);
  if (held.is_local || heads.heads == 0) return;
  const HeadShare own = share_of_heads(heads, ulysses, group.rank);
  if (exchange.kind == ExchangeKind::kKeys)
    return add_ring(a, segments, held.in_ring, own.num_kv_heads, exchange.goes_back, calls);
  const int64_t num_kinds = exchange.has_keys ? 2 : 0;  // keys and values, besides queries
  const int64_t own_rows = total_size(held.neighbours[static_cast<size_t>(group.rank)]);
  Traffic there;
  for (int64_t other = 0; other < ulysses; ++other) {
    if (other == group.rank) continue;
    const HeadShare theirs = share_of_heads(heads, ulysses, other);
    const int64_t their_rows = total_size(held.neighbours[static_cast<size_t>(other)]);
    there += {.sent = own_rows * (theirs.num_heads + num_kinds * theirs.num_kv_heads) * a.head_dim,
              .received = their_rows * (own.num_heads + num_kinds * own.num_kv_heads) * a.head_dim};
  }
  calls.add(group, OperationKind::kAllToAll, exchange.goes_back ? opposite(there) : there, bytes_);
}

/// Keys of the next step are on their way while those of one are worked with. Going back, gradients of a step's keys
/// return once they are known, when keys of the step behind it are on their way.
void ExchangeCalls::add_ring(const Attention& a, const PackedSegments& segments,
                             const std::vector<std::vector<Range>>& held, int64_t kv_heads, bool goes_back,
                             CallList& calls) const {
  const RankGroup& ring = place_.ring;
  const int64_t row_elements = 2 * kv_heads * a.head_dim;
  std::vector<Traffic> steps;
  for (int64_t step = 1; step < ring.size(); ++step) {
    const RingKeys keys = ring_keys(held, segments, mask_of(a), ring.rank, step);
    steps.push_back(
        {.sent = total_size(keys.sent) * row_elements, .received = total_size(keys.received) * row_elements});
  }
  const auto exchange = [&](const Traffic& step) {
    if (step.received > 0) calls.receive(ring, step.received, bytes_);
    if (step.sent > 0) calls.send(ring, step.sent, bytes_);
  };
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i == 0) exchange(steps[i]);
    if (i + 1 < steps.size()) exchange(steps[i + 1]);
    if (goes_back) exchange(opposite(steps[i]));
  }
}

void ExchangeCalls::add_media(const RowLists& from, const RowLists& to, int64_t width, CallList& calls) const {
  const RankGroup& group = place_.context;
  if (group.size() == 1) return;
  const OwnRoute route = plan_own_route(from, to, group.rank);
  if (route.moves_rows) calls.add(group, OperationKind::kAllToAll, row_traffic(route).in_bytes(width), bytes_);
}

}  // namespace weft
