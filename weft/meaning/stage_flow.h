#pragma once

#include <functional>
#include <span>
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
  int64_t width = 0;                ///< of a row between its blocks
  int64_t output_width = 0;
  std::vector<int64_t> branches = {};     ///< num_branches behind each stage
  std::vector<int64_t> later_parts = {};  ///< of an encoder: num_later_parts behind each stage
};

/// Of the layers whose rows a module's exit takes besides the last one's, those among so many first ones.
int64_t num_branches(const Module& module, int64_t layers_behind);
/// Of the further parts of an encoder's rows, which the llm adds behind its first layers, those that are still to be
/// added with so many of its layers behind.
int64_t num_later_parts(const Module& encoder, int64_t llm_layers_behind);
/// How many layers of a module a pipeline has up to a stage.
int64_t layers_behind(std::span<const StagePart> parts, size_t module, int32_t stage);

/// By module of the plan, for the pipeline of the llm or of an encoder beside it.
std::vector<FlowModule> flow_modules(const Plan& plan, size_t module);

/// Which rows of a module a microbatch carries from one stage to the next.
enum class FlowKind : uint8_t {
  kBetween,  ///< those between two of its blocks, beside them those that its exit will take of earlier layers
  kOutput,   ///< what it gives, when all of its blocks are behind
  kTaken,    ///< of what the llm has taken in, the parts that later layers are to add: of the llm's own rows
};

/// A tensor that a microbatch carries from one stage to the next.
struct FlowPart {
  size_t module = 0;
  FlowKind kind = FlowKind::kBetween;
  int64_t width = 0;            ///< of its rows
  bool needs_gradient = false;  ///< a weight before it is trained
};

/// Those that leave a stage, which is not the last, in order. Modules without data in the microbatch have none.
std::vector<FlowPart> flow_after(const std::vector<FlowModule>& modules, int32_t stage,
                                 const std::function<bool(size_t module)>& has_data);

}  // namespace weft
