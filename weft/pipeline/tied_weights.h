#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "weft/pipeline/module_groups.h"
#include "weft/pipeline/trained_stage.h"

namespace weft {

/// The copies on this rank of a table that the llm's embedding and head share from different stages. There are none
/// where it is frozen: those need nothing to stay equal.
class TiedWeights {
 public:
  TiedWeights() = default;
  /// The stages are this rank's of the llm's pipeline.
  TiedWeights(const Plan& plan, std::deque<TrainedStage>& stages, const ModuleGroups& groups);

  bool contains(const Parameter& parameter) const;
  /// Whether its gradient is counted in a norm: of all copies the embedding's is.
  bool is_counted(const Parameter& parameter) const;
  /// Makes the reduced gradients of all copies their sum.
  void sum_gradients();

 private:
  struct Copy {
    TrainedStage* stage = nullptr;
    ParameterPtr parameter;
    bool is_embedding = false;  ///< or else the head's
  };
  std::vector<Copy> copies_;
  std::optional<Group> group_;  ///< with the rank of the other copy
};

}  // namespace weft
