#include "weft/meaning/unobeyed.h"

#include <utility>

#include <fmt/format.h>

namespace weft {
namespace {

double dropout_of(const Op& op) {
  if (const auto* attention = std::get_if<Attention>(&op.shape)) return attention->dropout;
  if (const auto* pointwise = std::get_if<Pointwise>(&op.shape)) return pointwise->dropout;
  return 0;
}

/// Rows of encoders have no numbers that would say what is dropped of them.
void find_dropout(const Module& encoder, std::vector<Violation>& found) {
  for (int64_t place = 0; place < num_blocks(encoder); ++place) {
    for (const Op& op : block_at(encoder, place).ops) {
      if (dropout_of(op) == 0) continue;
      found.push_back({fmt::format("model.{}", name_of(encoder.kind)),
                       fmt::format("asks for dropout in {}, but training drops nothing in encoders; use 0", op.name)});
      return;
    }
  }
}

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
  for (const Module& module : plan.model.modules) {
    if (module.kind != ModuleKind::kLlm) find_dropout(module, found);
  }
  return found;
}

}  // namespace weft
