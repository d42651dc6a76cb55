#include "weft/prepare/resize_weights.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Keys' cubic with a = -1/2.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// The most bits with which the largest weight still fits into 16 with its sign.
int precision_for(double largest) {
  int bits = 0;
  for (; bits < 22; ++bits) {
    const auto next = static_cast<int>(0.5 + largest * (1 << (bits + 1)));
    if (next >= 1 << 15) break;
  }
  return bits;
}

/// Weights that are zero at either end add nothing.
void trim(ResizeWeights& to, int64_t pixel) {
  int32_t* weights = to.weights.data() + pixel * to.stride;
  int32_t& first = to.first[static_cast<size_t>(pixel)];
  int32_t& count = to.count[static_cast<size_t>(pixel)];
  int32_t zeros = 0;
  while (zeros < count - 1 && weights[zeros] == 0) ++zeros;
  std::copy(weights + zeros, weights + count, weights);
  std::fill(weights + count - zeros, weights + count, 0);
  first += zeros;
  count -= zeros;
  while (count > 1 && weights[count - 1] == 0) --count;
}

}  // namespace

ResizeWeights bicubic_weights(int64_t old_size, int64_t new_size) {
  WEFT_CHECK(old_size > 0 && new_size > 0, "resizing {} pixels to {}", old_size, new_size);
  const double scale = static_cast<double>(old_size) / static_cast<double>(new_size);
  const double widening = std::max(scale, 1.0);
  const double support = 2 * widening;
  const double inverse = scale >= 1 ? 1 / scale : 1;

  ResizeWeights to{.old_size = old_size, .new_size = new_size};
  to.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  to.first.resize(static_cast<size_t>(new_size));
  to.count.resize(static_cast<size_t>(new_size));
  std::vector<double> exact(static_cast<size_t>(new_size * to.stride), 0);
  double largest = 0;
  for (int64_t i = 0; i < new_size; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), old_size);
    const int64_t count = std::clamp<int64_t>(end - first, 0, to.stride);
    double* row = exact.data() + i * to.stride;
    double total = 0;
    for (int64_t j = 0; j < count; ++j) {
      row[j] = cubic((static_cast<double>(j + first) - center + 0.5) * inverse);
      total += row[j];
    }
    for (int64_t j = 0; j < count; ++j) {
      if (total != 0) row[j] /= total;
      largest = std::max(largest, row[j]);
    }
    to.first[static_cast<size_t>(i)] = static_cast<int32_t>(first);
    to.count[static_cast<size_t>(i)] = static_cast<int32_t>(count);
  }
  to.precision_bits = precision_for(largest);
  to.weights.resize(exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    const double scaled = exact[i] * (1 << to.precision_bits);
    to.weights[i] = static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }
  for (int64_t i = 0; i < new_size; ++i) trim(to, i);
  return to;
}

}  // namespace weft
