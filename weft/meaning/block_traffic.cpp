#include "weft/meaning/block_traffic.h"

#include "weft/base/check.h"
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

ModulePlace place_on(const Plan& plan, const ModulePlan& module, const Mesh& mesh, int64_t rank) {
  return {.plan = &module,
          .spec = plan.model.find(module.kind),
          .tensor = group_along(mesh, rank, {"tp"}),
          .context = context_ranks(mesh, rank, module.cp_ulysses),
          .data = group_along(mesh, rank, {"cp", "dp"}),
          .pipeline = group_along(mesh, rank, {"pp"}),
          .data_parallel_rank = mesh.coordinates_of(rank)[mesh.grid().axis("dp")]};
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

void BlockTraffic::changes(const Block& block, int64_t inside, int64_t outside, const BlockPasses& passes) {
  for (const BlockChange& each : block_changes(*place_.spec, block, place_.divides_rows()))
    change(each.change, each.has_outputs ? outside : inside, each.columns, passes);
}

void BlockTraffic::attention(const Attention& a, const PackedSegments& segments, const RowDeal& deal,
                             const BlockPasses& passes, int64_t num_again) {
  const ContextRanks& context = place_.context;
  if (context.all.size() == 1) return;
  const int64_t ulysses = context.ulysses.size();
  const UlyssesRows rows = ulysses_rows(deal, segments, ulysses, context.all.rank);
  if (rows.is_local) return;
  const HeadShare dealt = share_of_heads({a.heads, a.kv_heads, a.head_dim}, place_.tensor.size(), place_.tensor.rank);
  const HeadCounts heads{.heads = dealt.num_heads, .kv_heads = dealt.num_kv_heads, .head_dim = a.head_dim};
  const HeadShare own = share_of_heads(heads, ulysses, context.ulysses.rank);

  // Heads for rows, in elements: of queries alone, and with keys and values.
  const int64_t own_rows = total_size(rows.neighbours[static_cast<size_t>(context.ulysses.rank)]);
  Traffic queries, packed;
  for (int64_t other = 0; other < ulysses; ++other) {
    if (other == context.ulysses.rank) continue;
    const HeadShare theirs = share_of_heads(heads, ulysses, other);
    const int64_t their_rows = total_size(rows.neighbours[static_cast<size_t>(other)]);
    queries += {.sent = own_rows * theirs.num_heads * a.head_dim, .received = their_rows * own.num_heads * a.head_dim};
    packed += {.sent = own_rows * (theirs.num_heads + 2 * theirs.num_kv_heads) * a.head_dim,
               .received = their_rows * (own.num_heads + 2 * own.num_kv_heads) * a.head_dim};
  }
  const auto back = [](const Traffic& there) { return Traffic{.sent = there.received, .received = there.sent}; };
  const auto exchange = [&](const Traffic& elements, int64_t times) {
    writer_.add(context.ulysses, OperationKind::kAllToAll, elements, bytes_, times);
  };
  exchange(packed, passes.forwards);
  exchange(back(queries), passes.forwards);
  exchange(queries, passes.backwards);
  exchange(back(packed), passes.backwards);

  // Keys and values go round, in a backward once more; their gradients come back.
  const int64_t row_elements = 2 * own.num_kv_heads * a.head_dim;
  for (int64_t step = 1; step < context.ring.size(); ++step) {
    const RingKeys keys = ring_keys(rows.in_ring, segments, mask_of(a), context.ring.rank, step);
    const int64_t sent = total_size(keys.sent) * row_elements, received = total_size(keys.received) * row_elements;
    const int64_t times = passes.forwards + num_again + passes.backwards;
    if (sent > 0) {
      writer_.send(context.ring, sent, bytes_, times);
      writer_.receive(context.ring, sent, bytes_, passes.backwards);
    }
    if (received > 0) {
      writer_.receive(context.ring, received, bytes_, times);
      writer_.send(context.ring, received, bytes_, passes.backwards);
    }
  }
}

void BlockTraffic::vocabulary_loss(int64_t targets, int64_t loss_bytes, const BlockPasses& passes) {
  writer_.all_reduce(place_.tensor, targets, loss_bytes, 3 * passes.forwards);
}

void BlockTraffic::exchange_media(const RowLists& made, const RowLists& needed, int64_t width,
                                  const BlockPasses& passes) {
  const RankGroup& group = place_.context.all;
  if (group.size() == 1) return;
  const auto add = [&](const RowRoute& route, int64_t times) {
    if (route.messages.empty()) return;
    const Traffic rows = row_traffic(route, group.rank);
    writer_.add(group, OperationKind::kAllToAll, rows.in_bytes(width), bytes_, times);
  };
  add(plan_row_route(made, needed), passes.forwards);
  add(plan_row_route(needed, made), passes.backwards);
}

}  // namespace weft
