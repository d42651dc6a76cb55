#pragma once

#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// What one stage holds on its rank, in bytes.
struct StageMemory {
  double static_bytes = 0;                   ///< weights, gradients, optimizer states: all the time
  double activation_bytes = 0;               ///< one microbatch's, from F to B, or to W where the backward is split
  double freed_by_input_gradient_bytes = 0;  ///< the part of it that I frees already
  double workspace_bytes = 0;                ///< on top while an action of the stage runs
  double passing_bytes = 0;                  ///< the same, of buffers for communication
};

/// The same for one group of an encoder beside the pipeline.
struct EncoderMemory {
  double static_bytes = 0;
  double activation_bytes = 0;  ///< one macro batch's, from EF to EB
  double output_bytes = 0;      ///< one macro batch's embeddings, where only they are kept
  double workspace_bytes = 0;
  double passing_bytes = 0;
};

/// What a rank holds at the moment when it holds most.
struct PeakMemory {
  double static_bytes = 0;
  double activation_bytes = 0;
  double workspace_bytes = 0;
  double passing_bytes = 0;

  double total_bytes() const { return static_bytes + activation_bytes + workspace_bytes + passing_bytes; }
};

/// The most that each rank holds at once, walking its row: what an action allocates is there from its start, what it
/// frees until its end. Order alone decides, so no times are needed. Embeddings of an encoder whose activations are not
/// kept lie there for as many macro batches as may be alive. `encoders` has, for each encoder of the schedule, one
/// entry a group.
std::vector<PeakMemory> walk_memory(const Schedule& schedule, const std::vector<StageMemory>& stages,
                                    const std::vector<std::vector<EncoderMemory>>& encoders = {});

/// The totals of walk_memory, without encoders.
std::vector<double> peak_memory_bytes(const Schedule& schedule, const std::vector<StageMemory>& stages);

}  // namespace weft
