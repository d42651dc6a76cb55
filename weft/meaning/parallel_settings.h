#pragma once

#include <cstdint>
#include <string>

#include "weft/base/result.h"
#include "weft/plan/plan.h"

namespace weft {

/// One setting for the whole model, as code gives it that does not search.
struct ParallelSettings {
  int64_t data_parallel = 1;
  int64_t model_parallel = 1;    ///< tensor parallelism
  int64_t context_parallel = 1;  ///< by Ulysses inside a node and by a ring across nodes
  int64_t expert_parallel = 1;   ///< divides data_parallel · context_parallel
  int64_t pipeline_stage = 1;
  int64_t virtual_stages = 1;    ///< chunks of each pipeline rank
  int64_t micro_batch_num = 1;   ///< microbatches of each data-parallel rank in a step
  int64_t micro_batch_size = 1;  ///< samples of one
  bool sequence_parallel = false;
  int64_t optimizer_shard = 0;    ///< ZeRO: 0 to 3
  int64_t recomputed_layers = 0;  ///< of each stage; the first so many
  std::string schedule;           ///< empty: 1f1b, interleaved_1f1b with virtual stages
  PrecisionPlan precision;
  double buckets_mb = 64;
};

/// The plan that these settings are: encoders inline on the first stage, the llm's layers dealt out evenly. The
/// workload's global batch becomes what the settings multiply to, and the cluster is as many nodes of its kind as the
/// ranks need. The error names what is not legal.
Result<Plan> make_plan(const Model& model, const Cluster& cluster, const Workload& workload,
                       const ParallelSettings& settings);

}  // namespace weft
