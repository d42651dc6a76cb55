#include "weft/mesh/transition_form.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {
namespace {

/// The dims of a tensor that a search may cut, as a tensor of its own: all of them where they fit, else those that the
/// states shard, and as many others as fit. Every cut divides their length evenly, so that prices are those of long
/// tensors, and into parts of which none is empty: one part lies inside of another only if it does so for all lengths.
class SearchedDims {
 public:
  SearchedDims(const AxisGrid& grid, size_t num_dims, const std::vector<AxisState>& from,
               const std::vector<AxisState>& to)
      : num_dims_(num_dims) {
    std::vector<bool> is_searched(num_dims);
    for (const std::vector<AxisState>* states : {&from, &to}) {
      for (const AxisState& state : *states) {
        if (state.is_shard()) is_searched[state.dim] = true;
      }
    }
    auto count = static_cast<size_t>(std::count(is_searched.begin(), is_searched.end(), true));
    const int64_t ranks = grid.num_positions();
    length_ = count <= most_dims(2 * ranks) ? 2 * ranks : ranks;
    WEFT_CHECK(count <= most_dims(length_), "a transition of {} dims that are cut on {} ranks", count, ranks);
    for (size_t dim = 0; dim < num_dims; ++dim) {
      if (!is_searched[dim] && count < most_dims(length_)) is_searched[dim] = true, ++count;
      if (is_searched[dim]) dims_.push_back(dim);
    }
  }

  Layout layout(const AxisGrid& grid, std::vector<AxisState> states) const {
    for (AxisState& state : states) {
      if (state.is_shard())
        state.dim = static_cast<size_t>(std::find(dims_.begin(), dims_.end(), state.dim) - dims_.begin());
    }
    return *Layout::create(grid, std::vector<int64_t>(dims_.size(), length_), std::move(states));
  }

  /// Steps of such tensors as those of the whole one, whose other dims have one element.
  std::vector<Step> of_all_dims(std::vector<Step> steps) const {
    if (dims_.size() == num_dims_) return steps;
    for (Step& step : steps) {
      step.dim = dims_[step.dim];
      step.to_dim = dims_[step.to_dim];
      step.before = of_all_dims(step.before);
      step.after = of_all_dims(step.after);
    }
    return steps;
  }

 private:
  /// How many dims of a length a tensor can have.
  static size_t most_dims(int64_t length) {
    size_t count = 0;
    for (int64_t left = Layout::kMostElements / length; count < Layout::kMostDims && left > 0; left /= length) ++count;
    return count;
  }

  Layout of_all_dims(const Layout& layout) const {
    std::vector<int64_t> shape(num_dims_, 1);
    for (const size_t dim : dims_) shape[dim] = length_;
    std::vector<AxisState> states = layout.states();
    for (AxisState& state : states) {
      if (state.is_shard()) state.dim = dims_[state.dim];
    }
    return *Layout::create(layout.grid(), std::move(shape), std::move(states));
  }

  size_t num_dims_;
  int64_t length_ = 0;
  std::vector<size_t> dims_;  ///< of the tensor, in order
};

}  // namespace

TransitionForm::TransitionForm(const AxisGrid& grid, size_t num_dims, const std::vector<AxisState>& from,
                               const std::vector<AxisState>& to) {
  if (from == to) return;
  const SearchedDims dims(grid, num_dims, from, to);
  Transition found = plan_transition(dims.layout(grid, from), dims.layout(grid, to));
  forward_ = dims.of_all_dims(std::move(found.forward));
  adjoint_ = dims.of_all_dims(std::move(found.adjoint));
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
