#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace weft {

/// By how much the heads of every packed row are turned: cosines and sines [rows, head_dim / 2]. Element i of a head
/// turns with element i + head_dim / 2.
struct RotaryTable {
  at::Tensor cos;
  at::Tensor sin;

  bool is_defined() const { return cos.defined(); }
  RotaryTable rows(int64_t begin, int64_t count) const {
    return {cos.narrow(0, begin, count), sin.narrow(0, begin, count)};
  }
};

/// Turns heads [rows, heads, head_dim] in place, or back; heads may have several dims, such as groups.
void rotate_(const at::Tensor& heads, const RotaryTable& table, bool back = false);

/// The same for autograd, not in place.
at::Tensor rotated(const at::Tensor& heads, const RotaryTable& table);

}  // namespace weft
