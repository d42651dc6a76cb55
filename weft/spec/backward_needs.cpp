#include "weft/spec/backward_needs.h"

#include <algorithm>

namespace weft {

BackwardNeeds backward_needs(const Model& model, const Workload& workload, ModuleKind module) {
  const bool is_trained = !workload.is_frozen(module);
  const bool has_trained_before =
      module == ModuleKind::kLlm && std::any_of(model.modules.begin(), model.modules.end(), [&](const Module& other) {
        return other.kind != module && !workload.is_frozen(other.kind);
      });
  return {.weights = is_trained, .inputs = is_trained || has_trained_before};
}

}  // namespace weft
