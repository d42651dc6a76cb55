#include "weft/engine/token_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "weft/weights/philox.h"

namespace weft {

void penalize_repetition(std::vector<double>& logits, const std::vector<int64_t>& seen, double penalty) {
  if (penalty == 1) return;
  for (const int64_t token : std::unordered_set<int64_t>(seen.begin(), seen.end())) {
    if (token < 0 || token >= std::ssize(logits)) continue;
    double& logit = logits[static_cast<size_t>(token)];
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

std::vector<double> sampled_probabilities(const std::vector<double>& logits, double temperature, double top_p) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> probabilities(logits.size());
  std::transform(logits.begin(), logits.end(), probabilities.begin(),
                 [&](double logit) { return std::exp((logit - largest) / temperature); });
  const double all = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= all;
  if (top_p >= 1) return probabilities;
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
  double kept = 0;
  for (const size_t token : order) {
    if (kept >= top_p && kept > 0) probabilities[token] = 0;  // one is always left
    kept += probabilities[token];
  }
  const double left = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  for (double& probability : probabilities) probability /= left;
  return probabilities;
}

int64_t TokenChooser::choose(std::vector<double> logits) {
  penalize_repetition(logits, seen_, sampling_.repetition_penalty);
  int64_t token = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (sampling_.temperature > 0) {
    const std::vector<double> probabilities = sampled_probabilities(logits, sampling_.temperature, sampling_.top_p);
    const PhiloxBlock drawn = philox_4x32_10(
        {static_cast<uint32_t>(num_chosen_), static_cast<uint32_t>(prompt_), 0x746f6b65, 0},
        {static_cast<uint32_t>(sampling_.seed & 0xffff'ffff), static_cast<uint32_t>(sampling_.seed >> 32)});
    // 53 bits, as many as a double has.
    const double place = std::ldexp(static_cast<double>((uint64_t{drawn[0]} << 21) ^ (drawn[1] >> 11)), -53);
    double sum = 0;
    for (size_t i = 0; i < probabilities.size(); ++i) {
      if (probabilities[i] == 0) continue;
      token = static_cast<int64_t>(i);  // rounding may leave a little above the last one's end
      sum += probabilities[i];
      if (place < sum) break;
    }
  }
  add(token);
  return token;
}

}  // namespace weft
