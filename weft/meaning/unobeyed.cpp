#include "weft/meaning/unobeyed.h"

#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

void find_half_precision(const PrecisionPlan& precision, std::vector<Violation>& found) {
  for (const auto& [field, value] :
       {std::pair{"compute", precision.compute}, {"master", precision.master}, {"reduce", precision.reduce}}) {
    if (value != Precision::kFp16) continue;
    found.push_back(
        {fmt::format("precision.{}", field),
         "is fp16, whose small gradients vanish without a scaled loss; fp64, fp32 and bf16 are trained with"});
  }
}

}  // namespace

std::vector<Violation> find_unobeyed(const Plan& plan) {
  std::vector<Violation> found;
  const int64_t zero = plan.llm().zero;
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_in_pipeline() || module.zero == zero) continue;
    found.push_back({fmt::format("modules.{}.zero", name_of(module.kind)),
                     fmt::format("is {}, but the llm's is {}, and an inline encoder lies in its stages; give both the "
                                 "same",
                                 module.zero, zero)});
  }
  for (const auto& [field, share] :
       {std::pair{"optimizer", plan.offload.optimizer}, {"activations", plan.offload.activations}}) {
    if (share == 0) continue;
    found.push_back(
        {fmt::format("offload.{}", field), fmt::format("is {}, but training does not offload yet; use 0", share)});
  }
  if (plan.overlap_tp)
    found.push_back({"overlap.tp",
                     "is true, but training does not overlap the communication of tensor parallelism yet; use false"});
  find_half_precision(plan.precision, found);
  if (plan.workload.attention != AttentionKernel::kFused)
    found.push_back({"workload.attention", "is unfused, but training fuses attention; use fused"});
  if (const std::optional<Error>& reason = plan.model.numbers.llm.not_run) {
    const std::string advice = reason->advice.empty() ? "" : ". " + reason->advice;
    found.push_back({"model." + reason->field, reason->problem + advice});
  }
  return found;
}

}  // namespace weft
