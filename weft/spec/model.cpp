#include "weft/spec/model.h"

namespace weft {

const Module* Model::find(ModuleKind kind) const {
  for (const Module& module : modules) {
    if (module.kind == kind) return &module;
  }
  return nullptr;
}

int64_t num_parameters(const Model& model) {
  int64_t total = 0;
  for (const Module& module : model.modules) total += num_parameters(module);
  return total;
}

}  // namespace weft
