#include "weft/layers/rotary.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void rotate_same_type(const at::Tensor& heads, const at::Tensor& cos, const at::Tensor& sin, double sign) {
  const int64_t half = heads.size(-1) / 2;
  const at::Tensor first = heads.narrow(-1, 0, half);
  const at::Tensor second = heads.narrow(-1, half, half);
  const at::Tensor turned = at::mul(first, cos).addcmul_(second, sin, -sign);
  second.mul_(cos).addcmul_(first, sin, sign);
  first.copy_(turned);
}

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& heads, const at::Tensor& cos,
                            const at::Tensor& sin) {
    saved->save_for_backward({cos, sin});
    const at::Tensor result = heads.clone(at::MemoryFormat::Contiguous);
    rotate_(result, {cos, sin});
    return result;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor result = gradients[0].clone(at::MemoryFormat::Contiguous);
    rotate_(result, {tensors[0], tensors[1]}, /*back=*/true);
    return {result, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void rotate_(const at::Tensor& heads, const RotaryTable& table, bool back) {
  const at::NoGradGuard no_graph;
  const bool is_packed =
      heads.dim() == 3 && heads.stride(2) == 1 && heads.stride(1) == heads.size(2) && heads.stride(0) % 8 == 0;
  if (has_own_kernels(heads) && is_packed && table.cos.scalar_type() == at::kFloat)
    return turn_heads_(heads, table.cos, table.sin, back);
  if (has_own_kernels(heads) && heads.dim() == 4) {
    for (int64_t group = 0; group < heads.size(1); ++group) rotate_(heads.select(1, group), table, back);
    return;
  }
  at::Tensor cos = table.cos, sin = table.sin;
  for (int64_t dim = 2; dim < heads.dim(); ++dim) cos = cos.unsqueeze(1), sin = sin.unsqueeze(1);
  const double sign = back ? -1 : 1;
  if (heads.scalar_type() == cos.scalar_type()) return rotate_same_type(heads, cos, sin, sign);
  const at::Tensor exact = heads.to(cos.scalar_type());
  rotate_same_type(exact, cos, sin, sign);
  heads.copy_(exact);
}

at::Tensor rotated(const at::Tensor& heads, const RotaryTable& table) {
  return RotaryFunction::apply(heads, table.cos, table.sin);
}

}  // namespace weft
