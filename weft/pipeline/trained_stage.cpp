#include "weft/pipeline/trained_stage.h"

namespace weft {

std::vector<StageOptimizer*> TrainedStage::optimizers() const {
  std::vector<StageOptimizer*> all = {optimizer.get()};
  if (experts) all.push_back(experts.get());
  return all;
}

HeldElements TrainedStage::peak_elements() const {
  HeldElements peak;
  for (const StageOptimizer* own : optimizers()) {
    const HeldElements held = own->peak_elements();
    peak.values += held.values;
    peak.gradients += held.gradients;
    peak.states += held.states;
  }
  return peak;
}

}  // namespace weft
