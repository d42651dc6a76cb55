#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh/layout.h"

namespace weft {

/// The layouts of one tensor as numbers. Whatever differs only in the gradient is one number: the gradient's layout has
/// a number of its own.
class LayoutCodes {
 public:
  LayoutCodes(size_t num_dims, size_t num_axes) : num_dims_(num_dims), num_axes_(num_axes), count_(1) {
    for (size_t axis = 0; axis < num_axes; ++axis) count_ *= num_dims + 2;
  }

  size_t count() const { return count_; }
  size_t num_dims() const { return num_dims_; }
  size_t num_axes() const { return num_axes_; }

  /// Of a value in these states, one for each axis.
  size_t of_value(const std::vector<AxisState>& states) const {
    size_t code = 0;
    for (size_t axis = num_axes_; axis-- > 0;) code = code * (num_dims_ + 2) + digit(states[axis]);
    return code;
  }
  /// Of the gradient of a value in these states.
  size_t of_gradient(const std::vector<AxisState>& states) const {
    size_t code = 0;
    for (size_t axis = num_axes_; axis-- > 0;) code = code * (num_dims_ + 2) + digit(states[axis].gradient());
    return code;
  }
  /// A replicated state is one with a replicated gradient.
  std::vector<AxisState> states(size_t code) const {
    std::vector<AxisState> states;
    for (size_t axis = 0; axis < num_axes_; ++axis, code /= num_dims_ + 2) {
      const size_t digit = code % (num_dims_ + 2);
      states.push_back(digit < num_dims_    ? AxisState::shard(digit)
                       : digit == num_dims_ ? AxisState::partial()
                                            : AxisState::replicated());
    }
    return states;
  }

 private:
  size_t digit(const AxisState& state) const {
    return state.is_shard() ? state.dim : state.is_partial() ? num_dims_ : num_dims_ + 1;
  }

  size_t num_dims_;
  size_t num_axes_;
  size_t count_;
};

}  // namespace weft
