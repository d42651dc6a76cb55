#pragma once

#include <span>
#include <vector>

#include "weft/plan/plan.h"

namespace weft {

/// The blocks of one module in one pipeline stage.
struct StagePart {
  int32_t stage = 0;
  int32_t module = 0;       ///< in the plan
  int64_t first_layer = 0;  ///< in the module
  int64_t num_layers = 0;
  std::span<const RecomputeRun> recompute;  ///< of its blocks; the plan's, which must outlive it
  bool has_entry = false;
  bool has_exit = false;

  /// What each of its layers recomputes.
  std::vector<BlockRecompute> recomputes() const;
};

/// How a schedule that has a name lays stages over pipeline ranks; one that nobody knows, in a loop.
Placement placement_of(const Plan& plan);
/// Where a stage lies: as the plan's rows say, where it has some.
StagePlace place_of_stage(const Plan& plan, int32_t stage);
/// Whether its backwards are input gradients and weight gradients apart: encoders beside the pipeline have whole ones,
/// whatever the pipeline's schedule.
bool has_split_backward(const Plan& plan, const ModulePlan& module);

/// Of the llm's pipeline.
int32_t num_stages(const Plan& plan);
/// Chunks of a pipeline rank.
int64_t num_chunks(const Plan& plan, int64_t rank);

/// What lies in the llm's pipeline, by stage, then in flow order: the llm and inline encoders. Embedding and patch
/// embedding lie where their module's first layer is, the llm's on the first stage where no encoder is inline; the head
/// lies on the last stage. Clears `parts` first.
void list_stage_parts(const Plan& plan, std::vector<StagePart>& parts);

/// The modules whose blocks lie in the pipeline of the llm, or of an encoder beside it, by their number in the plan.
std::vector<size_t> modules_of_pipeline(const Plan& plan, size_t module);
/// What lies in its stages: list_stage_parts' or list_encoder_parts'.
std::vector<StagePart> parts_of_pipeline(const Plan& plan, size_t module);

/// The stages on a pipeline rank of a module, in the order of its chunks: of the llm's pipeline, or of an encoder's
/// own.
std::vector<int32_t> stages_on(const Plan& plan, const ModulePlan& module, int64_t pipeline_rank);

/// What lies in the stages of an encoder beside the llm's pipeline, one part a stage of its own: the entry on the
/// first, the exit on the last.
std::vector<StagePart> list_encoder_parts(const Plan& plan, size_t module);

}  // namespace weft
