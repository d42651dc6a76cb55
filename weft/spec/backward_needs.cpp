#include "weft/spec/backward_needs.h"

#include <algorithm>

#include "weft/program/adapter_ops.h"
#include "weft/spec/adapters.h"

namespace weft {
namespace {

bool has_adapters_in(const Module& module) {
  for (int64_t place = 0; place < num_blocks(module); ++place) {
    if (has_adapters(block_at(module, place))) return true;
  }
  return false;
}

}  // namespace

BackwardNeeds backward_needs(const Model& model, const Workload& workload, ModuleKind module) {
  const auto trains = [&](const Module& other) {
    return !workload.is_frozen(other.kind) && (!has_adapters(model) || has_adapters_in(other));
  };
  const Module* own = model.find(module);
  const bool is_trained = own == nullptr ? !workload.is_frozen(module) : trains(*own);
  const bool has_trained_before =
      module == ModuleKind::kLlm && std::any_of(model.modules.begin(), model.modules.end(), [&](const Module& other) {
        return other.kind != module && trains(other);
      });
  return {.weights = is_trained, .inputs = is_trained || has_trained_before};
}

}  // namespace weft
