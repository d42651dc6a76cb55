#pragma once

#include <cstdint>
#include <vector>

#include "weft/engine/predict_request.h"

namespace weft {

/// Chooses tokens by their logits: the likeliest, or drawn. What is drawn depends on the seed, the prompt's number and
/// how many tokens were chosen before alone.
class TokenChooser {
 public:
  TokenChooser(const Sampling& sampling, uint64_t prompt, std::vector<int64_t> before)
      : sampling_(sampling), prompt_(prompt), seen_(std::move(before)) {}

  /// Whether the likeliest logit is enough to know.
  bool takes_likeliest() const { return sampling_.temperature == 0 && sampling_.repetition_penalty == 1; }
  /// The next token, which counts as seen.
  int64_t choose(std::vector<double> logits);
  void add(int64_t token) {
    seen_.push_back(token);
    ++num_chosen_;
  }

 private:
  Sampling sampling_;
  uint64_t prompt_;
  std::vector<int64_t> seen_;  ///< the prompt, and what was chosen
  int64_t num_chosen_ = 0;
};

/// Scores as transformers' repetition penalty leaves them: those of tokens that were seen are less likely.
void penalize_repetition(std::vector<double>& logits, const std::vector<int64_t>& seen, double penalty);

/// Probabilities at a temperature, of the fewest likeliest tokens that have `top_p` of all; 0 for others.
std::vector<double> sampled_probabilities(const std::vector<double>& logits, double temperature, double top_p);

}  // namespace weft
