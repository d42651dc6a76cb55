#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "weft/engine/token_choice.h"
#include "weft/models/adapter_files.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"

namespace weft {

struct GenerationLimits {
  int64_t max_new_tokens = 0;
  std::vector<int64_t> end_ids;  ///< tokens after which generation stops; none: it never does early
  Sampling sampling;
  uint64_t prompt_number = 0;                        ///< among those of a request
  std::function<void(int64_t token)> on_token = {};  ///< as it is chosen
};

struct Generation {
  std::vector<int64_t> tokens;  ///< the one that ended it, if any, included
  bool reached_end = false;
  double prefill_ms = 0;  ///< the prompt and the first token
  double decode_ms = 0;   ///< the tokens after it
};

/// A model with its weights, which continues prompts token by token.
class Predictor {
 public:
  /// `options` are the type and device of the weights. A model with adapters has theirs from a folder of their own.
  static Result<Predictor> load(const Model& model, const std::filesystem::path& folder, at::TensorOptions options,
                                const LoadProgress& progress = {}, const AdapterFolder* adapter = nullptr);

  const Network& network() const { return network_; }
  /// The prompt is one sample that `prepare_inputs` made. Logits that are no numbers fail the job.
  Result<Generation> generate(const Inputs& prompt, const GenerationLimits& limits) const;

 private:
  Predictor(Network network, at::TensorOptions options) : network_(std::move(network)), options_(options) {}

  Network network_;
  at::TensorOptions options_;
};

}  // namespace weft
