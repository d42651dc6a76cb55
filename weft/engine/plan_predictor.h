#pragma once

#include <vector>

#include "weft/engine/predictor.h"
#include "weft/models/inputs.h"
#include "weft/plan/plan.h"

namespace weft {

/// A prompt for a plan's ranks.
struct PlannedPrompt {
  RawInputs raw;  ///< one sample
  Inputs inputs;  ///< the same, prepared
  int64_t max_new_tokens = 0;
};

struct PlannedGenerations {
  std::vector<Generation> prompts;  ///< in their order
  double prefill_ms = 0;            ///< of all
  double decode_ms = 0;
};

/// What a job on a plan's ranks is made of.
struct PlanPrediction {
  const Plan& plan;  ///< as prediction_plan makes it
  std::filesystem::path model;
  std::filesystem::path adapter;  ///< empty: none
  std::string device = "cpu";
  int num_threads = 0;  ///< of a rank; 0: a share of the cores
  std::vector<int64_t> end_ids;
  Sampling sampling;
  std::function<void(int64_t token)> on_token = {};  ///< of the first prompt, in the process of rank 0
};

/// Continues prompts by a plan, several at once: every data-parallel rank and microbatch has one. Each rank keeps keys
/// and values of its own layers, heads and texts. Ranks are threads of this process or, started by a launcher, this is
/// one of them; nothing is returned but to the process of rank 0.
Result<std::optional<PlannedGenerations>> generate_on_ranks(const PlanPrediction& job,
                                                            const std::vector<PlannedPrompt>& prompts);

}  // namespace weft
