#pragma once

#include <cstdint>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// Calls visit(expert, first row, rows) for every expert that has rows, which are sorted by expert.
template <typename Visit>
void each_expert(const std::vector<int64_t>& counts, Visit visit) {
  int64_t row = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > 0) visit(static_cast<int64_t>(expert), row, counts[expert]);
    row += counts[expert];
  }
}

/// Zeros where a parameter has no gradient yet.
void begin_gradient(Parameter& weight);
/// Adds scale · left · right to a part of a weight's gradient, which must have begun.
void add_product_to(const at::Tensor& part, const at::Tensor& left, const at::Tensor& right, double scale = 1);

}  // namespace weft
