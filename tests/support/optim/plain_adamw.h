#pragma once

#include <cmath>
#include <vector>

#include "weft/optim/adamw.h"

namespace weft {

/// AdamW by its formula, number by number: what tests compare with.
struct PlainAdamW {
  std::vector<double> weights;
  std::vector<double> moment1 = std::vector<double>(weights.size());
  std::vector<double> moment2 = std::vector<double>(weights.size());

  void update(const std::vector<double>& gradient, const AdamWSettings& s, double rate, int64_t step) {
    const auto k = static_cast<double>(step);
    for (size_t i = 0; i < weights.size(); ++i) {
      moment1[i] = s.beta1 * moment1[i] + (1 - s.beta1) * gradient[i];
      moment2[i] = s.beta2 * moment2[i] + (1 - s.beta2) * gradient[i] * gradient[i];
      const double mean = moment1[i] / (1 - std::pow(s.beta1, k));
      const double square = moment2[i] / (1 - std::pow(s.beta2, k));
      weights[i] = weights[i] * (1 - rate * s.weight_decay) - rate * mean / (std::sqrt(square) + s.epsilon);
    }
  }
};

}  // namespace weft
