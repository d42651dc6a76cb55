#pragma once

#include <utility>
#include <vector>

#include "weft/meaning/bucket_layout.h"
#include "weft/parallelize/stage.h"
#include "weft/pipeline/module_groups.h"

namespace weft {

/// Elements that several ranks of tensor parallelism have copies of, while each has only a part of their gradient: the
/// ranks sum it before data parallelism does.
struct CopiedGradients {
  Group group;
  bool is_of_experts = false;  ///< which have an optimizer of their own
  std::vector<std::pair<ParameterPtr, ElementRange>> parts;
};

/// By block of a stage.
std::vector<std::vector<CopiedGradients>> find_copies(const StageModel& stage, const ModuleGroups& groups);

void sum_copies(CopiedGradients& copies);

}  // namespace weft
