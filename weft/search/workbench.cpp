#include "weft/search/workbench.h"

namespace weft {

const ModuleCostsOf& Workbench::pipeline_costs() {
  costs_.assign(plan_.modules.size(), nullptr);
  for (size_t m = 0; m < plan_.modules.size(); ++m) {
    if (plan_.modules[m].is_in_pipeline())
      costs_[m] = &simulator_.costs().module_costs(plan_, plan_.modules[m], static_cast<double>(plan_.schedule.mbs));
  }
  return costs_;
}

}  // namespace weft
