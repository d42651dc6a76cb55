#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/layers/parameter.h"

namespace weft {

/// Rows sorted by expert: how many each has. Where a device has counted them they are read back when somebody asks for
/// numbers, once, which waits for the device.
class ExpertCounts {
 public:
  ExpertCounts() : ExpertCounts(std::vector<int64_t>()) {}
  ExpertCounts(std::vector<int64_t> numbers);  // NOLINT: numbers are one way to say it
  /// Of choices that are sorted on a device.
  static ExpertCounts of_sorted(const at::Tensor& sorted_experts, int64_t num_experts);

  int64_t size() const;
  const std::vector<int64_t>& numbers() const;
  /// The same in int64, wherever they are.
  at::Tensor tensor() const;
  /// Behind the last row of each expert: int32 on the given device.
  at::Tensor ends_on(at::Device device) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Whether rows meet their experts in one product of a device that needs no numbers: bf16 on a GPU of sm_90, widths in
/// eights. `width` is that of the result.
bool has_grouped_products(const at::Tensor& rows, int64_t width);

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
