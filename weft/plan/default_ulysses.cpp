#include "weft/plan/default_ulysses.h"

#include <algorithm>

#include "weft/plan/head_limit.h"
#include "weft/plan/module_mesh.h"

namespace weft {
int64_t default_ulysses(const Plan& plan, const ModulePlan& module) {
  if (module.cp == 1 || plan.cluster.devices_per_node < 1) return 1;
  const Result<Mesh> mesh = mesh_of(module);
  if (!mesh || !mesh->grid().find("cp")) return 1;
  const auto groups = mesh->groups(mesh->grid().axes_named({"cp"}));
  const auto node_of = [&](int64_t rank) { return rank / plan.cluster.devices_per_node; };
  const Module* spec = plan.model.find(module.kind);
  if (spec == nullptr) return 1;
  const HeadLimit limit = head_limit(*spec);
  for (int64_t ulysses = module.cp; ulysses > 1; --ulysses) {
    if (module.cp % ulysses != 0 || !limit.allows(module.tp, ulysses)) continue;
    const bool stays_inside = std::all_of(groups.begin(), groups.end(), [&](const std::vector<int64_t>& group) {
      for (size_t i = 0; i < group.size(); ++i) {
        const size_t first = i - i % static_cast<size_t>(ulysses);
        if (node_of(group[i]) != node_of(group[first])) return false;
      }
      return true;
    });
    if (stays_inside) return ulysses;
  }
  return 1;
}

}  // namespace weft
