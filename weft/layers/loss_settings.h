#pragma once

namespace weft {

/// What is minimised besides the cross entropy of a row with its target.
struct LossSettings {
  /// Of the target's share, this much goes to all classes alike.
  double label_smoothing = 0;
  /// Times the square of the logarithm of a row's sum of exponentials, which keeps that near 0.
  double z_loss = 0;

  bool is_plain() const { return label_smoothing == 0 && z_loss == 0; }
  bool operator==(const LossSettings&) const = default;
};

}  // namespace weft
