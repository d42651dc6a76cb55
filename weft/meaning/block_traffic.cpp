#include "weft/meaning/block_traffic.h"

#include "weft/meaning/group_names.h"
#include "weft/mesh/context_blocks.h"
#include "weft/mesh/head_share.h"
#include "weft/mesh/split.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

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

AttentionMask mask_of(const Attention& attention) {
  const bool is_sliding = attention.mask == Mask::kSliding;
  return {.is_causal = is_sliding || attention.mask == Mask::kCausal, .window = is_sliding ? attention.window : 0};
}

}  // namespace

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

void BlockTraffic::change(RowChange which, int64_t rows, int64_t columns, const BlockPasses& passes) {
  const RankGroup& group = place_.tensor;
  if (group.size() == 1) return;
  const AxisGrid grid = *AxisGrid::create({{"tp", group.size()}});
  const RowStates states = states_of(which, place_.divides_rows());
  const auto layout = [&](AxisState state) { return *Layout::create(grid, {rows, columns}, {state}); };
  const Transition transition = plan_transition(layout(states.from), layout(states.to));
  const auto add = [&](const std::vector<Step>& steps, int64_t times) {
    for (const Step& step : steps) {
      if (is_collective(step.kind))
        writer_.add(group, operation_of(step.kind), traffic_of(step, group.rank), bytes_, times);
    }
  };
  add(transition.forward, passes.forwards);
  add(transition.adjoint, passes.backwards);
}

void BlockTraffic::changes(const Block& block, int64_t inside, int64_t outside, int64_t forwards,
                           const std::vector<OpGradients>& gradients) {
  for (const BlockChange& each :
       block_changes(*place_.spec, block, place_.divides_rows(), place_.plan->experts_over_tp)) {
    const OpGradients& op = gradients[each.op];
    const bool comes_back = each.change == RowChange::kLeave ? op.of_output : op.of_input;
    const int64_t again = each.happens_again && op.of_weight ? 1 : 0;
    change(each.change, each.has_outputs ? outside : inside, each.columns,
           {.forwards = forwards + again, .backwards = comes_back ? 1 : 0});
  }
}

void BlockTraffic::attention(const Attention& a, const PackedSegments& segments, const RowDeal& deal,
                             const BlockPasses& passes, int64_t num_again) {
  const RankGroup &context = place_.context, &ulysses_group = place_.ulysses, &ring = place_.ring;
  if (context.size() == 1) return;
  const int64_t ulysses = ulysses_group.size();
  const UlyssesRows rows = ulysses_rows(deal, segments, ulysses, context.rank);
  if (rows.is_local) return;
  const HeadShare dealt = share_of_heads({a.heads, a.kv_heads, a.head_dim}, place_.tensor.size(), place_.tensor.rank);
  const HeadCounts heads{.heads = dealt.num_heads, .kv_heads = dealt.num_kv_heads, .head_dim = a.head_dim};
  const HeadShare own = share_of_heads(heads, ulysses, ulysses_group.rank);

  // Heads for rows, in elements: of queries alone, and with keys and values.
  const int64_t own_rows = total_size(rows.neighbours[static_cast<size_t>(ulysses_group.rank)]);
  Traffic queries, packed;
  for (int64_t other = 0; other < ulysses; ++other) {
    if (other == ulysses_group.rank) continue;
    const HeadShare theirs = share_of_heads(heads, ulysses, other);
    const int64_t their_rows = total_size(rows.neighbours[static_cast<size_t>(other)]);
    queries += {.sent = own_rows * theirs.num_heads * a.head_dim, .received = their_rows * own.num_heads * a.head_dim};
    packed += {.sent = own_rows * (theirs.num_heads + 2 * theirs.num_kv_heads) * a.head_dim,
               .received = their_rows * (own.num_heads + 2 * own.num_kv_heads) * a.head_dim};
  }
  const auto back = [](const Traffic& there) { return Traffic{.sent = there.received, .received = there.sent}; };
  const auto exchange = [&](const Traffic& elements, int64_t times) {
    writer_.add(ulysses_group, OperationKind::kAllToAll, elements, bytes_, times);
  };
  exchange(packed, passes.forwards);
  exchange(back(queries), passes.forwards);
  exchange(queries, passes.backwards);
  exchange(back(packed), passes.backwards);

  // Keys and values go round, in a backward once more; their gradients come back.
  const int64_t row_elements = 2 * own.num_kv_heads * a.head_dim;
  for (int64_t step = 1; step < ring.size(); ++step) {
    const RingKeys keys = ring_keys(rows.in_ring, segments, mask_of(a), ring.rank, step);
    const int64_t sent = total_size(keys.sent) * row_elements, received = total_size(keys.received) * row_elements;
    const int64_t times = passes.forwards + num_again + passes.backwards;
    if (sent > 0) {
      writer_.send(ring, sent, bytes_, times);
      writer_.receive(ring, sent, bytes_, passes.backwards);
    }
    if (received > 0) {
      writer_.receive(ring, received, bytes_, times);
      writer_.send(ring, received, bytes_, passes.backwards);
    }
  }
}

void BlockTraffic::vocabulary_loss(int64_t targets, int64_t loss_bytes, const BlockPasses& passes) {
  writer_.all_reduce(place_.tensor, targets, loss_bytes, 3 * passes.forwards);
}

void BlockTraffic::exchange_media(const RowLists& made, const RowLists& needed, int64_t width,
                                  const BlockPasses& passes) {
  const RankGroup& group = place_.context;
  if (group.size() == 1) return;
  const auto add = [&](const OwnRoute& route, int64_t times) {
    if (!route.moves_rows) return;
    writer_.add(group, OperationKind::kAllToAll, row_traffic(route).in_bytes(width), bytes_, times);
  };
  add(plan_own_route(made, needed, group.rank), passes.forwards);
  add(plan_own_route(needed, made, group.rank), passes.backwards);
}

}  // namespace weft
