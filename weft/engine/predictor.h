#pragma once

#include <filesystem>
#include <vector>

#include "weft/models/load_weights.h"
#include "weft/models/network.h"

namespace weft {

struct GenerationLimits {
  int64_t max_new_tokens = 0;
  std::vector<int64_t> end_ids;  ///< tokens after which generation stops; none: it never does early
};

struct Generation {
  std::vector<int64_t> tokens;  ///< the one that ended it, if any, included
  bool reached_end = false;
  double prefill_ms = 0;  ///< the prompt and the first token
  double decode_ms = 0;   ///< the tokens after it
};

/// A model with its weights, which continues prompts by the likeliest token each time.
class Predictor {
 public:
  /// `options` are the type and device of the weights.
  static Result<Predictor> load(const Model& model, const std::filesystem::path& folder, at::TensorOptions options,
                                const LoadProgress& progress = {});

  const Network& network() const { return network_; }
  /// The prompt is one sample that `prepare_inputs` made. Logits that are no numbers fail the job.
  Result<Generation> generate(const Inputs& prompt, const GenerationLimits& limits) const;

 private:
  Predictor(Network network, at::TensorOptions options) : network_(std::move(network)), options_(options) {}

  Network network_;
  at::TensorOptions options_;
};

}  // namespace weft
