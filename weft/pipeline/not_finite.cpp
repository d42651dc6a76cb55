#include "weft/pipeline/not_finite.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/pipeline/sum_over_ranks.h"
#include "weft/program/module_kinds.h"

namespace weft {

std::string find_not_finite(const StepOutput& output, const std::vector<TrainedStage*>& stages, Group& everyone) {
  // In the order in which data flows: what is not finite makes everything behind it so.
  for (const ModuleKind kind : kModuleKinds) {
    const auto found = output.sums.find(kind);
    if (!std::isfinite(sum_over_ranks(everyone, found == output.sums.end() ? 0 : found->second.item<double>())))
      return fmt::format("what the {} module computes is not finite", name_of(kind));
  }
  // And gradients flow back.
  for (auto kind = kModuleKinds.rbegin(); kind != kModuleKinds.rend(); ++kind) {
    double squares = 0;
    for (const TrainedStage* stage : stages) {
      const auto is_of_kind = [&](const Parameter& parameter, const WeightPiece&) {
        return stage->model->module_of(parameter) == *kind ? 1.0 : 0.0;
      };
      for (const StageOptimizer* optimizer : stage->optimizers())
        squares += optimizer->local_squared_norm(is_of_kind, /*is_exact=*/true).item<double>();
    }
    if (!std::isfinite(sum_over_ranks(everyone, squares)))
      return fmt::format("the gradient of the {} module is not finite", name_of(*kind));
  }
  return "the sum over all modules is not finite";
}

}  // namespace weft
