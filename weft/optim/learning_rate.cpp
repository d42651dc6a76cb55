#include "weft/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {

double LearningRate::at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  if (kind == Kind::kConstant) return peak;
  // The last of `total_steps` steps has total_steps - 1 before it.
  const auto length = static_cast<double>(std::max<int64_t>(1, total_steps - 1 - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  const double left = kind == Kind::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace weft
