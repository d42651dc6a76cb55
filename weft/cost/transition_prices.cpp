#include "weft/cost/transition_prices.h"

#include <algorithm>
#include <limits>

#include "weft/base/as_double.h"
#include "weft/base/never.h"

namespace weft {
namespace {

/// Of two ways that take as long, the one with fewer steps.
constexpr double kStepMs = 1e-9;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

}  // namespace

double largest_part(const ProgramDim& dim, int64_t parts) {
  return as_double(dim.largest_part(parts));
}

TransitionPrices::TransitionPrices(const AxisLinks& links, const std::vector<ProgramDim>& dims,
                                   double bytes_per_element, const std::vector<StepKind>& forbidden)
    : codes_(dims.size(), links.num_axes()), bytes_per_element_(bytes_per_element), forbidden_(forbidden) {
  const size_t count = codes_.count();
  for (size_t code = 0; code < count; ++code) {
    const std::vector<AxisState> states = codes_.states(code);
    double elements = 1;
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      int64_t parts = 1;
      for (size_t axis = 0; axis < states.size(); ++axis) {
        if (states[axis] == AxisState::shard(dim)) parts *= links.grid().size(axis);
      }
      elements *= largest_part(dims[dim], parts);
    }
    elements_.push_back(elements);
  }
  for (size_t made = 0; made < count; ++made) {
    const std::vector<AxisState> states = codes_.states(made);
    gradients_.push_back(codes_.of_gradient(states));
    for (size_t read = 0; read < count; ++read) {
      std::vector<AxisState> kept = codes_.states(read);
      for (size_t axis = 0; axis < states.size(); ++axis) {
        if (!states[axis].is_partial()) kept[axis] = states[axis];
      }
      kept_.push_back(elements_[codes_.of_value(kept)]);
    }
  }
  ms_.assign(count * count, kNever);
  first_.assign(count * count, kNone);
  for (size_t code = 0; code < count; ++code) {
    ms_[code * count + code] = 0;
    add_steps(links, code);
  }
  for (size_t mid = 0; mid < count; ++mid) {
    for (size_t from = 0; from < count; ++from) {
      const double head = ms_[from * count + mid];
      if (head == kNever || from == mid) continue;
      for (size_t to = 0; to < count; ++to) {
        const double way = head + ms_[mid * count + to];
        if (way < ms_[from * count + to]) {
          ms_[from * count + to] = way;
          first_[from * count + to] = first_[from * count + mid];
        }
      }
    }
  }
}

void TransitionPrices::add_step(const AxisLinks& links, StepKind kind, unsigned axes, size_t from, size_t to,
                                size_t dim, size_t to_dim) {
  if (std::find(forbidden_.begin(), forbidden_.end(), kind) != forbidden_.end()) return;
  PricedStep step{.kind = kind, .axes = axes, .dim = dim, .to_dim = to_dim, .before = from, .after = to};
  step.bytes = bytes_per_element_ * (kind == StepKind::kAllGather ? elements_[to] : elements_[from]);
  step.ms = links.step_ms(kind, axes, step.bytes);
  double& known = ms_[from * codes_.count() + to];
  if (step.ms + kStepMs >= known) return;
  known = step.ms + kStepMs;
  first_[from * codes_.count() + to] = static_cast<uint32_t>(steps_.size());
  steps_.push_back(step);
}

void TransitionPrices::add_steps(const AxisLinks& links, size_t from) {
  const std::vector<AxisState> states = codes_.states(from);
  // Where several axes cut a dim the outer one cuts first, so that a step joins or cuts over the innermost only.
  const auto is_innermost = [&](unsigned axes, size_t dim) {
    for (size_t axis = 0; axis < states.size(); ++axis) {
      const bool is_other = (axes >> axis & 1u) == 0 && states[axis] == AxisState::shard(dim);
      if (is_other && (axes >> axis) != 0) return false;
    }
    return true;
  };
  const auto changed = [&](unsigned axes, AxisState state) {
    std::vector<AxisState> next = states;
    for (size_t axis = 0; axis < states.size(); ++axis) {
      if ((axes >> axis & 1u) != 0) next[axis] = state;
    }
    return codes_.of_value(next);
  };
  for (unsigned axes = 1; axes < (1u << states.size()); ++axes) {
    std::optional<AxisState> state;
    bool are_alike = true;
    for (size_t axis = 0; axis < states.size(); ++axis) {
      if ((axes >> axis & 1u) == 0) continue;
      are_alike = are_alike && (!state || *state == states[axis]);
      state = states[axis];
    }
    if (!are_alike) continue;
    const auto add = [&](StepKind kind, AxisState next, size_t dim, size_t to_dim = 0) {
      add_step(links, kind, axes, from, changed(axes, next), dim, to_dim);
    };
    if (state->is_shard()) {
      if (!is_innermost(axes, state->dim)) continue;
      add(StepKind::kAllGather, AxisState::replicated(), state->dim);
      add(StepKind::kZeroPad, AxisState::partial(), state->dim);
    } else if (state->is_partial()) {
      add(StepKind::kAllReduce, AxisState::replicated(), 0);
    } else {
      add(StepKind::kZeroPad, AxisState::partial(), 0);
    }
    for (size_t dim = 0; dim < codes_.num_dims(); ++dim) {
      if (!is_innermost(axes, dim) || *state == AxisState::shard(dim)) continue;
      if (state->is_shard()) {
        add(StepKind::kAllToAll, AxisState::shard(dim), state->dim, dim);
      } else {
        add(state->is_partial() ? StepKind::kReduceScatter : StepKind::kSlice, AxisState::shard(dim), dim);
      }
    }
  }
}

std::vector<PricedStep> TransitionPrices::steps(size_t from, size_t to) const {
  std::vector<PricedStep> way;
  while (from != to) {
    const uint32_t step = first_[from * codes_.count() + to];
    if (step == kNone) break;
    way.push_back(steps_[step]);
    from = steps_[step].after;
  }
  return way;
}

}  // namespace weft
