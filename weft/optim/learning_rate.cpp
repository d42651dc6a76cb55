#include "weft/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {

double LearningRate::at(const Position& position) const {
  // In steps of the present batch.
  const auto batch = static_cast<double>(position.batch);
  const double step = static_cast<double>(position.samples) / batch;
  const double warmup = static_cast<double>(warmup_steps * position.first_batch) / batch;
  const double total = static_cast<double>(position.all_samples) / batch;
  if (step < warmup) return peak * step / warmup;
  if (kind == Kind::kConstant) return peak;
  // The last of all steps has `total - 1` before it.
  const double length = std::max(1.0, total - 1 - warmup);
  const double progress = std::min(1.0, (step - warmup) / length);
  const double left = kind == Kind::kLinear ? 1 - progress : 0.5 * (1 + std::cos(std::numbers::pi * progress));
  return peak * (end_fraction + (1 - end_fraction) * left);
}

}  // namespace weft
