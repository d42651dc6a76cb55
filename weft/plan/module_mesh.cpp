#include "weft/plan/module_mesh.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft {

Result<Mesh> mesh_of(const ModulePlan& module) {
  std::vector<Axis> axes;
  for (const std::string& name : module.axis_order) axes.push_back({name, module.degree(name)});
  // Orders of modules without stages may leave it out.
  if (std::find(module.axis_order.begin(), module.axis_order.end(), "pp") == module.axis_order.end())
    axes.push_back({"pp", module.pp});
  Result<Mesh> mesh = Mesh::create(axes, module.ranks);
  if (!mesh) {
    return Error{.field = fmt::format("modules.{}.ranks", name_of(module.kind)), .problem = mesh.error().problem};
  }
  return mesh;
}

}  // namespace weft
