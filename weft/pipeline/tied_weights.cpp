#include "weft/pipeline/tied_weights.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/tensor/local_tensor.h"

namespace weft {

TiedWeights::TiedWeights(const Plan& plan, std::deque<TrainedStage>& stages, const ModuleGroups& groups)
    : group_(groups.tied_ends) {
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  if (!tied_table(plan, parts).is_copied || !Trainable(plan).trains_table()) return;
  const int32_t entry = llm_entry_stage(plan, parts), exit = num_stages(plan) - 1;
  for (TrainedStage& stage : stages) {
    const int32_t index = stage.model->stage();
    if (index == entry || index == exit) copies_.push_back({&stage, stage.model->embedding(), index == entry});
  }
}

bool TiedWeights::contains(const Parameter& parameter) const {
  return std::any_of(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.parameter.get() == &parameter; });
}

bool TiedWeights::is_counted(const Parameter& parameter) const {
  return std::none_of(copies_.begin(), copies_.end(),
                      [&](const Copy& copy) { return copy.parameter.get() == &parameter && !copy.is_embedding; });
}

void TiedWeights::sum_gradients() {
  const at::NoGradGuard no_graph;
  // Copies lie alone in equal buckets, so that a rank owns the same elements of both.
  std::vector<at::Tensor> owned;
  for (const Copy& copy : copies_) owned.push_back(copy.stage->optimizer->reduced_gradients(*copy.parameter));
  if (owned.size() == 2) {
    owned[0].add_(owned[1]);
    owned[1].copy_(owned[0]);
  } else if (group_) {
    group_->all_reduce(buffer_of(owned.front()), Reduction::kSum).wait();
  }
}

}  // namespace weft
