#include "weft/mesh/transition.h"

#include "weft/base/check.h"
#include "weft/mesh/transition_search.h"

namespace weft {

Transition plan_transition(const Layout& from, const Layout& to) {
  return {.forward = plan_steps(from, to), .adjoint = plan_steps(to.gradient(), from.gradient())};
}

std::vector<Step> plan_steps(const Layout& from, const Layout& to) {
  WEFT_CHECK(from.grid() == to.grid(), "a transition from {} to {}", from.text(), to.text());
  WEFT_CHECK(from.shape() == to.shape(), "a transition from {} to {}", from.text(), to.text());
  if (from == to) return {};
  return TransitionSearch(from, to).run();
}

}  // namespace weft
