#include "weft/models/text/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

namespace weft {
namespace {

at::Tensor frequencies_by_wavelength(const RopeNumbers& rope, const at::Tensor& plain) {
  const double longest = rope.original_positions / rope.low_frequency_factor;
  const double shortest = rope.original_positions / rope.high_frequency_factor;
  const at::Tensor wavelength = at::reciprocal(plain) * (2 * std::numbers::pi);
  const at::Tensor stretched = plain / rope.factor;
  const at::Tensor share = (at::reciprocal(wavelength) * rope.original_positions - rope.low_frequency_factor) /
                           (rope.high_frequency_factor - rope.low_frequency_factor);
  const at::Tensor between = (1 - share) * stretched + share * plain;
  return at::where(wavelength > longest, stretched, at::where(wavelength < shortest, plain, between));
}

at::Tensor yarn_frequencies(const RopeNumbers& rope, const at::Tensor& plain, int64_t head_dim) {
  const auto dim = static_cast<double>(head_dim);
  const auto pair_turning = [&](double turns) {
    return dim * std::log(rope.original_positions / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  double low = pair_turning(rope.beta_fast);
  double high = pair_turning(rope.beta_slow);
  if (rope.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = ((at::arange(head_dim / 2, plain.scalar_type()) - low) / (high - low)).clamp_(0, 1);
  return plain / rope.factor * ramp + plain * (1 - ramp);
}

/// Whose position turns each pair of a head's elements.
std::vector<int64_t> axes_of_pairs(const RopeNumbers& rope, int64_t num_pairs) {
  constexpr int64_t kAxes = 3;
  std::vector<int64_t> axes;
  if (rope.interleaves_axes) {
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      const int64_t axis = pair % kAxes;
      axes.push_back(pair < kAxes * rope.sections[static_cast<size_t>(axis)] ? axis : 0);
    }
    return axes;
  }
  for (size_t section = 0; section < rope.sections.size(); ++section)
    axes.insert(axes.end(), static_cast<size_t>(rope.sections[section]), static_cast<int64_t>(section) % kAxes);
  return axes;
}

}  // namespace

at::Tensor rope_frequencies(const RopeNumbers& rope, int64_t head_dim, at::ScalarType type) {
  const at::Tensor exponents = at::arange(0, head_dim, 2, type) / static_cast<double>(head_dim);
  const at::Tensor plain = at::reciprocal(at::pow(rope.theta, exponents));
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return plain;
    case RopeScaling::kLinear:
      return plain / rope.factor;
    case RopeScaling::kByWavelength:
      return frequencies_by_wavelength(rope, plain);
    case RopeScaling::kYarn:
      return yarn_frequencies(rope, plain, head_dim);
  }
  return plain;
}

RotaryTable rope_table(const RopeNumbers& rope, int64_t head_dim, const at::Tensor& positions, at::ScalarType type) {
  const at::ScalarType exact = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor frequencies = rope_frequencies(rope, head_dim, exact).to(positions.device(), /*non_blocking=*/true);
  const at::Tensor places = positions.to(exact);
  at::Tensor by_pair = places.select(0, 0).unsqueeze(1);
  if (!rope.sections.empty()) {
    by_pair =
        places
            .index_select(
                0,
                at::tensor(axes_of_pairs(rope, head_dim / 2), at::kLong).to(positions.device(), /*non_blocking=*/true))
            .t();
  }
  const at::Tensor angles = by_pair * frequencies.unsqueeze(0);
  return {at::cos(angles) * rope.amplitude, at::sin(angles) * rope.amplitude};
}

}  // namespace weft
