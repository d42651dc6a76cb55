#include "weft/optim/weight_rules.h"

#include "weft/meaning/trainable.h"

namespace weft {

WeightSettings settings_of(const std::vector<WeightRule>& rules, std::string_view name) {
  WeightSettings settings;
  for (const WeightRule& rule : rules) {
    if (!fits_pattern(name, rule.weights)) continue;
    if (rule.learning_rate) settings.learning_rate = rule.learning_rate;
    if (rule.weight_decay) settings.weight_decay = rule.weight_decay;
  }
  return settings;
}

}  // namespace weft
