#include "weft/mesh/transition_form.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

/// A length that every cut divides evenly, so that prices are those of long tensors, and into parts of which none is
/// empty: one part lies inside of another only if it does so for all lengths.
int64_t usual_length(const AxisGrid& grid, size_t num_dims) {
  const int64_t wanted = 2 * grid.num_positions();
  const double most =
      std::pow(static_cast<double>(Layout::kMostElements), 1 / static_cast<double>(std::max<size_t>(num_dims, 1)));
  WEFT_CHECK(static_cast<double>(wanted) <= most, "a transition of {} dims on {} ranks", num_dims,
             grid.num_positions());
  return wanted;
}

}  // namespace

TransitionForm::TransitionForm(const AxisGrid& grid, size_t num_dims, const std::vector<AxisState>& from,
                               const std::vector<AxisState>& to) {
  if (from == to) return;
  const std::vector<int64_t> shape(num_dims, usual_length(grid, num_dims));
  Transition found = plan_transition(*Layout::create(grid, shape, from), *Layout::create(grid, shape, to));
  forward_ = std::move(found.forward);
  adjoint_ = std::move(found.adjoint);
}

bool TransitionForm::is_plain() const {
  const auto changes_nothing = [](const Step& step) { return step.kind == StepKind::kIdentity; };
  return std::all_of(forward_.begin(), forward_.end(), changes_nothing) &&
         std::all_of(adjoint_.begin(), adjoint_.end(), changes_nothing);
}

std::vector<Step> TransitionForm::at(const std::vector<Step>& steps, const LayoutOf& layout_of) {
  std::vector<Step> found;
  found.reserve(steps.size());
  for (const Step& step : steps) {
    Layout before = found.empty() ? layout_of(step.before.states()) : found.back().after;
    found.push_back({.kind = step.kind,
                     .axes = step.axes,
                     .dim = step.dim,
                     .to_dim = step.to_dim,
                     .before = std::move(before),
                     .after = layout_of(step.after.states())});
  }
  return found;
}

}  // namespace weft
