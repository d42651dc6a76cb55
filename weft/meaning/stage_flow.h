#pragma once

#include <functional>
#include <vector>

#include "weft/meaning/stage_parts.h"

namespace weft {

/// A module of the plan as the tensors between the stages of one pipeline see it.
struct FlowModule {
  bool is_llm = false;
  bool is_in_pipeline = false;      ///< this one
  bool is_beside = false;           ///< it, and its rows come from outside
  bool is_trained = false;          ///< some weight of it that rows pass
  int32_t first_trained_stage = 0;  ///< where the first of those is
  int32_t first_stage = 0;          ///< where its entry is
  int32_t last_stage = 0;           ///< where its exit is
};

/// By module of the plan, for the pipeline of the llm or of an encoder beside it.
std::vector<FlowModule> flow_modules(const Plan& plan, size_t module);

/// A tensor that a microbatch carries from one stage to the next: rows between two blocks of a module or, when all of
/// them are behind, its output.
struct FlowPart {
  size_t module = 0;
  bool is_output = false;
  bool needs_gradient = false;  ///< a weight before it is trained
};

/// Those that leave a stage, which is not the last, in order. Modules without data in the microbatch have none.
std::vector<FlowPart> flow_after(const std::vector<FlowModule>& modules, int32_t stage,
                                 const std::function<bool(size_t module)>& has_data);

}  // namespace weft
