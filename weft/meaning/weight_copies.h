#pragma once

#include <cstdint>

#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/zero_rules.h"

namespace weft {

/// How many ranks of one pipeline stage have the same weights, but for experts.
inline int64_t num_weight_copies(const Degrees& degrees) {
  return degrees.dp * degrees.cp;
}

/// What a module's ZeRO stage means for its weights, but for experts that ranks share out.
inline ZeroRules rules_of_weights(const Degrees& degrees) {
  return zero_rules(effective_zero(degrees.zero, num_weight_copies(degrees)), degrees.zero_keep_gathered);
}
/// And for those.
inline ZeroRules rules_of_experts(const Degrees& degrees) {
  return zero_rules(effective_zero(degrees.zero, num_expert_copies(degrees)), degrees.zero_keep_gathered);
}

}  // namespace weft
