#include "weft/layers/expert_rows.h"

#include <algorithm>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/layers/own_kernels.h"

namespace weft {

struct ExpertCounts::State {
  std::vector<int64_t> numbers;  ///< nothing yet, where they are on a device
  at::Tensor ends;               ///< int32 on a device; undefined where numbers came first
};

ExpertCounts::ExpertCounts(std::vector<int64_t> numbers) : state_(std::make_shared<State>()) {
  state_->numbers = std::move(numbers);
}

ExpertCounts ExpertCounts::of_sorted(const at::Tensor& sorted_experts, int64_t num_experts) {
  const at::Tensor all = at::arange(num_experts, sorted_experts.options());
  ExpertCounts counts;
  counts.state_->ends = at::searchsorted(sorted_experts, all, /*out_int32=*/true, /*right=*/true);
  return counts;
}

int64_t ExpertCounts::size() const {
  return state_->ends.defined() ? state_->ends.size(0) : std::ssize(state_->numbers);
}

const std::vector<int64_t>& ExpertCounts::numbers() const {
  if (state_->numbers.empty() && size() > 0) {
    const at::Tensor ends = state_->ends.cpu();
    int64_t before = 0;
    for (int64_t expert = 0; expert < ends.size(0); ++expert) {
      const int64_t end = ends.const_data_ptr<int32_t>()[expert];
      state_->numbers.push_back(end - before);
      before = end;
    }
  }
  return state_->numbers;
}

at::Tensor ExpertCounts::tensor() const {
  if (state_->ends.defined()) {
    const at::Tensor ends = state_->ends.to(at::kLong);
    return at::cat({ends.narrow(0, 0, 1), ends.narrow(0, 1, size() - 1) - ends.narrow(0, 0, size() - 1)});
  }
  const at::Tensor counts = at::empty({size()}, at::kLong);
  std::copy(state_->numbers.begin(), state_->numbers.end(), counts.data_ptr<int64_t>());
  return counts;
}

at::Tensor ExpertCounts::ends_on(at::Device device) const {
  if (state_->ends.defined()) {
    WEFT_CHECK(state_->ends.device() == device, "counts of another device");
    return state_->ends;
  }
  const at::Tensor ends = at::empty({size()}, at::kInt);
  int64_t end = 0;
  for (int64_t expert = 0; expert < size(); ++expert) {
    end += state_->numbers[static_cast<size_t>(expert)];
    ends.data_ptr<int32_t>()[expert] = static_cast<int32_t>(end);
  }
  return ends.to(device);
}

bool has_grouped_products(const at::Tensor& rows, int64_t width) {
  return width % 8 == 0 && has_own_kernels(rows) && own_kernels(rows).architecture() >= 90;
}

void begin_gradient(Parameter& weight) {
  if (!weight.gradient.defined())
    weight.gradient = at::zeros(weight.value.sizes(), weight.value.options().dtype(weight.gradient_type));
}

void add_product_to(const at::Tensor& part, const at::Tensor& left, const at::Tensor& right, double scale) {
  if (left.scalar_type() == part.scalar_type()) {
    part.addmm_(left, right, 1, scale);
  } else {
    part.add_(at::mm(left, right), scale);
  }
}

}  // namespace weft
