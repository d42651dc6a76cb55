#include "weft/mesh/transition_search.h"

#include <algorithm>
#include <bit>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr AxisMask bit(size_t axis) {
  return AxisMask{1} << axis;
}

/// Calls f with every non-empty subset of a mask, a smaller one before those that hold it: the first of equally good
/// steps is taken, and that should be the one in the smaller group.
template <typename F>
void for_each_subset(AxisMask mask, F f) {
  for (AxisMask subset = (0u - mask) & mask; subset != 0; subset = (subset - mask) & mask) f(subset);
}

}  // namespace

TransitionSearch::TransitionSearch(const Layout& from, const Layout& to) : from_(from), to_(to) {
  for (size_t axis = 0; axis < from.grid().num_axes(); ++axis) {
    if (from.grid().size(axis) > 1) active_ |= bit(axis);
  }
  for (size_t dim = 0; dim < from.num_dims(); ++dim) dims_.emplace_back(from.grid(), dim, from, to);
}

size_t TransitionSearch::NodeHash::operator()(const Node& node) const {
  uint64_t hash = (uint64_t{node.partial} << 32 | node.stale) * 0x9e3779b97f4a7c15u;
  for (const uint16_t cut : node.cuts) hash = (std::rotl(hash, 23) ^ cut) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

TransitionSearch::Node TransitionSearch::node_of(const Layout& layout) {
  Node node;
  for (size_t dim = 0; dim < dims_.size(); ++dim) node.cuts[dim] = static_cast<uint16_t>(dims_[dim].of(layout));
  for (const size_t axis : layout.partial_axes()) node.partial |= bit(axis) & active_;
  return node;
}

AxisState TransitionSearch::state_of(const Node& node, size_t axis) const {
  if ((node.stale & bit(axis)) != 0) return from_.state(axis);
  if ((active_ & bit(axis)) == 0) return to_.state(axis);
  if ((node.partial & bit(axis)) != 0) return AxisState::partial();
  for (size_t dim = 0; dim < dims_.size(); ++dim) {
    if ((dims_[dim].mask(node.cuts[dim]) & bit(axis)) != 0) return AxisState::shard(dim);
  }
  for (const Layout* layout : {&to_, &from_}) {
    if (layout->state(axis).is_replicated()) return layout->state(axis);
  }
  return AxisState::replicated();
}

Layout TransitionSearch::layout_of(const Node& node) const {
  const AxisGrid& grid = from_.grid();
  std::vector<AxisState> states;
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) states.push_back(state_of(node, axis));
  std::vector<Split> splits;
  for (size_t dim = 0; dim < dims_.size(); ++dim) {
    std::vector<int64_t> counts;  // with those of the axes of size 1
    for (size_t axis = grid.num_axes(); axis-- > 0;) {
      if (states[axis] == AxisState::shard(dim)) counts.push_back(grid.size(axis));
    }
    const Split& split = dims_[dim].split(node.cuts[dim]);
    splits.push_back(split.is_balanced() ? Split(split.length(), std::move(counts))
                                         : Split(split.sizes(), std::move(counts)));
  }
  return Layout::of_splits(grid, std::move(states), std::move(splits));
}

AxisMask TransitionSearch::replicated(const Node& node) const {
  AxisMask mask = active_ & ~node.partial;
  for (size_t dim = 0; dim < dims_.size(); ++dim) mask &= ~dims_[dim].mask(node.cuts[dim]);
  return mask;
}

int64_t TransitionSearch::longest_product(const Node& node, size_t skipped, size_t skipped_too) const {
  int64_t product = 1;
  for (size_t dim = 0; dim < dims_.size(); ++dim) {
    if (dim != skipped && dim != skipped_too) product *= dims_[dim].longest_part(node.cuts[dim]);
  }
  return product;
}

std::vector<Step> TransitionSearch::run() {
  Node start = node_of(from_);
  const Node goal = node_of(to_);
  for (size_t axis = 0; axis < from_.grid().num_axes(); ++axis) {
    const bool is_relabelled =
        (active_ & bit(axis)) == 0 || (from_.state(axis).is_replicated() && to_.state(axis).is_replicated());
    if (is_relabelled && from_.state(axis) != to_.state(axis)) start.stale |= bit(axis);
  }
  visits_[start] = {};
  queue_.push({.price = {}, .sequence = 0, .node = start});
  while (!queue_.empty()) {
    const Entry entry = queue_.top();
    queue_.pop();
    Visit& visit = visits_.at(entry.node);
    if (visit.is_done) continue;
    visit.is_done = true;
    if (entry.node == goal) break;
    current_ = entry.node;
    current_price_ = entry.price;
    expand(entry.node);
  }
  WEFT_CHECK(visits_.contains(goal), "no way from {} to {}", from_.text(), to_.text());

  std::vector<Step> steps;
  for (Node node = goal; node != start;) {
    const Visit& visit = visits_.at(node);
    Step step{.kind = visit.move.kind,
              .axes = {},
              .dim = visit.move.dim,
              .to_dim = visit.move.to_dim,
              .before = layout_of(visit.before),
              .after = layout_of(node),
              .busiest_received = visit.move.received};
    for (size_t axis = 0; axis < from_.grid().num_axes(); ++axis) {
      if ((visit.move.axes & bit(axis)) != 0) step.axes.push_back(axis);
    }
    steps.push_back(std::move(step));
    node = visit.before;
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

void TransitionSearch::expand(const Node& node) {
  if (node.stale != 0) {
    Node next = node;
    next.stale = 0;
    reach(next, {.kind = StepKind::kIdentity, .axes = node.stale});
  }
  for_each_subset(replicated(node), [&](AxisMask axes) {
    Node next = node;
    next.partial |= axes;
    reach(next, {.kind = StepKind::kZeroPad, .axes = axes});
    for (size_t dim = 0; dim < dims_.size(); ++dim) cut_dim(node, StepKind::kSlice, axes, dim);
  });
  for_each_subset(node.partial, [&](AxisMask axes) {
    Node next = node;
    next.partial &= ~axes;
    int64_t num_ranks = 1;
    for (size_t axis = 0; axis < from_.grid().num_axes(); ++axis) {
      if ((axes & bit(axis)) != 0) num_ranks *= from_.grid().size(axis);
    }
    const int64_t num_elements = longest_product(node, dims_.size(), dims_.size());
    reach(next, {.kind = StepKind::kAllReduce, .axes = axes, .received = all_reduce_received(num_elements, num_ranks)});
    for (size_t dim = 0; dim < dims_.size(); ++dim) cut_dim(node, StepKind::kReduceScatter, axes, dim);
  });
  for (size_t dim = 0; dim < dims_.size(); ++dim) join_dim(node, dim);
}

void TransitionSearch::cut_dim(const Node& node, StepKind kind, AxisMask axes, size_t dim) {
  DimCuts& cuts = dims_[dim];
  const size_t coarse = node.cuts[dim];
  for (const size_t fine : cuts.over(cuts.mask(coarse) | axes)) {
    const DimCuts::Refinement& refinement = cuts.refinement(fine, coarse);
    if (!refinement.holds) continue;
    Node next = node;
    next.cuts[dim] = static_cast<uint16_t>(fine);
    next.partial &= ~axes;
    const bool is_free = kind == StepKind::kSlice;
    reach(next, {.kind = kind,
                 .axes = axes,
                 .dim = dim,
                 .received = is_free ? 0 : refinement.most_missing * longest_product(node, dim, dim)});
  }
}

void TransitionSearch::join_dim(const Node& node, size_t dim) {
  DimCuts& cuts = dims_[dim];
  const size_t fine = node.cuts[dim];
  for_each_subset(cuts.mask(fine), [&](AxisMask axes) {
    for (const size_t coarse : cuts.over(cuts.mask(fine) & ~axes)) {
      const DimCuts::Refinement& refinement = cuts.refinement(fine, coarse);
      if (!refinement.holds) continue;
      Node next = node;
      next.cuts[dim] = static_cast<uint16_t>(coarse);
      reach(next, {.kind = StepKind::kAllGather,
                   .axes = axes,
                   .dim = dim,
                   .received = refinement.most_missing * longest_product(node, dim, dim)});
      next.partial |= axes;
      reach(next, {.kind = StepKind::kZeroPad, .axes = axes, .dim = dim});
      move_cut(node, axes, dim, coarse);
      change_parts(node, axes, dim, coarse);
    }
  });
}

void TransitionSearch::move_cut(const Node& node, AxisMask axes, size_t dim, size_t coarse) {
  const std::vector<int64_t>& missing = dims_[dim].refinement(node.cuts[dim], coarse).missing;
  for (size_t to_dim = 0; to_dim < dims_.size(); ++to_dim) {
    if (to_dim == dim) continue;
    DimCuts& cuts = dims_[to_dim];
    for (const size_t fine : cuts.over(cuts.mask(node.cuts[to_dim]) | axes)) {
      const DimCuts::Refinement& refinement = cuts.refinement(fine, node.cuts[to_dim]);
      if (!refinement.holds) continue;
      int64_t most = 0;  // a rank's place among `axes` says which part it had and which it gets
      for (size_t place = 0; place < missing.size(); ++place)
        most = std::max(most, missing[place] * refinement.longest_fine[place]);
      Node next = node;
      next.cuts[dim] = static_cast<uint16_t>(coarse);
      next.cuts[to_dim] = static_cast<uint16_t>(fine);
      reach(next, {.kind = StepKind::kAllToAll,
                   .axes = axes,
                   .dim = dim,
                   .to_dim = to_dim,
                   .received = most * longest_product(node, dim, to_dim)});
    }
  }
}

void TransitionSearch::change_parts(const Node& node, AxisMask axes, size_t dim, size_t coarse) {
  DimCuts& cuts = dims_[dim];
  for (const size_t other : cuts.over(cuts.mask(node.cuts[dim]))) {
    if (other == node.cuts[dim] || !cuts.refinement(other, coarse).holds) continue;
    Node next = node;
    next.cuts[dim] = static_cast<uint16_t>(other);
    const int64_t missing = cuts.most_missing_after(node.cuts[dim], other);
    reach(next, {.kind = StepKind::kAllToAll,
                 .axes = axes,
                 .dim = dim,
                 .to_dim = dim,
                 .received = missing * longest_product(node, dim, dim)});
  }
}

void TransitionSearch::reach(Node next, const Move& move) {
  next.stale &= ~move.axes;
  const Price price{current_price_.received + move.received, current_price_.num_steps + 1};
  const auto [entry, is_new] = visits_.try_emplace(next);
  Visit& visit = entry->second;
  if (!is_new && (visit.is_done || !(price < visit.price))) return;
  visit = {.price = price, .before = current_, .move = move};
  queue_.push({.price = price, .sequence = ++sequence_, .node = next});
}

}  // namespace weft
