#include "weft/layers/expert_rows.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace weft {

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
