#include "weft/search/choose_plan.h"

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/text.h"
#include "weft/exchange/target_limits.h"
#include "weft/search/best_plans.h"

namespace weft {

size_t choose_plan(const std::vector<FoundPlan>& plans, double within) {
  WEFT_CHECK(!plans.empty(), "there is no plan to choose");
  const double most_ms = plans.front().step_time_ms * (1 + within) * (1 + kTie);
  size_t chosen = 0;
  for (size_t i = 1; i < plans.size() && plans[i].step_time_ms <= most_ms; ++i) {
    if (plans[i].simplicity < plans[chosen].simplicity) chosen = i;
  }
  return chosen;
}

std::string why_chosen(const FoundPlan& chosen, const FoundPlan& fastest) {
  const std::vector<std::string> needs =
      what_is_simpler(chosen.candidate, fastest.candidate, chosen.plan.modules.size() - 1);
  std::string text = needs.empty() ? "" : fmt::format("it needs {}", fmt::join(needs, ", "));
  if (chosen.simplicity.lacks_export || !fastest.simplicity.lacks_export) return text;
  std::vector<std::string> systems;
  for (const Target target : expressed_by(chosen.plan)) systems.push_back(name_of(target));
  return fmt::format("{}exports to {}", needs.empty() ? "it " : text + ", and ", fmt::join(systems, ", "));
}

}  // namespace weft
