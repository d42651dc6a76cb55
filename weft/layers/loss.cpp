#include "weft/layers/loss.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/custom_function.h>

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& logits, const at::Tensor& targets) {
    const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor sums = at::logsumexp(logits.to(exact), {1}, /*keepdim=*/true);
    const at::Tensor chosen = at::gather(logits, 1, targets.unsqueeze(1)).to(exact);
    saved->save_for_backward({logits, targets, sums});
    return at::sub(sums, chosen).sum();
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& sums = tensors[2];
    at::Tensor dlogits = tensors[0].to(sums.scalar_type());  // the logits themselves, unless they are half precision
    dlogits.sub_(sums).exp_();
    const at::Tensor targets = tensors[1].unsqueeze(1);
    dlogits.scatter_add_(1, targets, at::full_like(sums, -1));
    dlogits.mul_(gradients[0]);
    return {dlogits.to(tensors[0].scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets) {
  return CrossEntropyFunction::apply(logits, targets);
}

}  // namespace weft
