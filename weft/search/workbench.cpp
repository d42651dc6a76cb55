#include "weft/search/workbench.h"

namespace weft {

void Workbench::assume(std::unique_ptr<DrawnLoads> loads) {
  loads_ = std::move(loads);
  const auto factor = [loads = loads_.get()](const Plan& plan, const ModulePlan& module) {
    return loads->factor(plan, module);
  };
  simulator_.costs().assume({.sample = loads_->mean(), .factor = factor, .share = loads_->share()});
}

const ModuleCostsOf& Workbench::pipeline_costs() {
  costs_.assign(plan_.modules.size(), nullptr);
  for (size_t m = 0; m < plan_.modules.size(); ++m) {
    if (plan_.modules[m].is_in_pipeline())
      costs_[m] = &simulator_.costs().module_costs(plan_, plan_.modules[m], static_cast<double>(plan_.schedule.mbs));
  }
  return costs_;
}

const ModuleCostsOf& Workbench::pipeline_blocks() {
  costs_.assign(plan_.modules.size(), nullptr);
  for (size_t m = 0; m < plan_.modules.size(); ++m) {
    if (plan_.modules[m].is_in_pipeline())
      costs_[m] = &simulator_.costs().block_costs(plan_, plan_.modules[m], static_cast<double>(plan_.schedule.mbs));
  }
  return costs_;
}

}  // namespace weft
