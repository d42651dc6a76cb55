#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// How weights whose names fit a pattern ('*' is any letters, '?' one) are updated, where that differs from the others.
struct WeightRule {
  std::string weights;
  std::optional<double> learning_rate;  ///< the peak of theirs
  std::optional<double> weight_decay;

  bool operator==(const WeightRule&) const = default;
};

/// What the rules say of one weight; of several that fit its name the last.
struct WeightSettings {
  std::optional<double> learning_rate;
  std::optional<double> weight_decay;

  bool operator==(const WeightSettings&) const = default;
};
WeightSettings settings_of(const std::vector<WeightRule>& rules, std::string_view name);

}  // namespace weft
