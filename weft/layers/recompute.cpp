#include "weft/layers/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct BlockHolder : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor&)> block;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<BlockHolder>& holder) {
    saved->save_for_backward({x});
    saved->saved_data["block"] = at::IValue::make_capsule(holder);
    return holder->block(x);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const auto holder = c10::static_intrusive_pointer_cast<BlockHolder>(saved->saved_data["block"].toCapsule());
    const at::AutoGradMode with_graph(true);
    const at::Tensor x = saved->get_saved_variables()[0].detach();
    x.set_requires_grad(saved->needs_input_grad(0));
    const at::Tensor y = holder->block(x);
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor&)>& block, const at::Tensor& x,
                      const at::Tensor& anchor) {
  auto holder = c10::make_intrusive<BlockHolder>();
  holder->block = block;
  return RecomputeFunction::apply(x, anchor, holder);
}

}  // namespace weft
