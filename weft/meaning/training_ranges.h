#pragma once

#include "weft/base/fields.h"

namespace weft {

// What numbers of a training configuration may be. Settings of other systems that become one are held to the same.

constexpr IntegerRange kStepRange{1, 1'000'000'000};
constexpr IntegerRange kKeptRange{0, 1'000'000'000};  ///< checkpoints
constexpr NumberRange kLearningRateRange{0, 1e6};
// A moment that never changes or never remembers is no average.
constexpr NumberRange kBeta1Range{0, 0.999999};
constexpr NumberRange kBeta2Range{0, 0.999999999};
constexpr NumberRange kEpsilonRange{1e-300, 1};
constexpr NumberRange kWeightDecayRange{0, 1e3};
constexpr NumberRange kGradientNormRange{0, 1e30};  ///< 0: gradients are not clipped

}  // namespace weft
