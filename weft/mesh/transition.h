#pragma once

#include <vector>

#include "weft/mesh/step.h"

namespace weft {

/// How a tensor goes from one layout to another on the same mesh, and how its gradient comes back. Both are value
/// preserving, and each is the adjoint of the other: forward takes `from` to `to`, and adjoint takes the gradient's
/// layout of `to` to that of `from`. See docs/design/layout-transitions.md.
struct Transition {
  std::vector<Step> forward;
  std::vector<Step> adjoint;
};

/// The layouts must be of one shape and on one grid, here and below.
Transition plan_transition(const Layout& from, const Layout& to);

/// The cheapest sequence of steps from one layout to another: least received by the busiest rank, summed over the
/// steps, and fewest steps among equals. None where the layouts are equal.
std::vector<Step> plan_steps(const Layout& from, const Layout& to);

}  // namespace weft
