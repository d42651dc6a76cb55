#include "weft/layers/linear.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/layers/adapter.h"
#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearHolder : torch::CustomClassHolder {
  ParameterPtr weight;
  ParameterPtr bias;
  WeightGradients* deferred = nullptr;
  ArrangeRows gather_again;  ///< makes whole what was kept; nothing: it is
  std::optional<AdapterUse> adapter;

  /// Whether weights whose gradients read the rows x are trained.
  bool keeps_rows() const { return weight->is_trainable() || (adapter && adapter->adapter->down->is_trainable()); }
  bool is_trainable() const {
    return weight->is_trainable() || (bias && bias->is_trainable()) || (adapter && adapter->adapter->is_trainable());
  }
};

/// What an adapter's gradients are made of, besides x and dy; nothing without one.
struct AdapterRows {
  at::Tensor narrow;
  at::Tensor d_narrow;
};

c10::intrusive_ptr<LinearHolder> make_holder(const ParameterPtr& weight, const ParameterPtr& bias,
                                             const RunContext& context) {
  auto layer = c10::make_intrusive<LinearHolder>();
  layer->weight = weight;
  layer->bias = bias;
  layer->deferred = context.deferred;
  layer->adapter = adapter_use(*weight, context);
  return layer;
}

void add_bias_gradient(Parameter& bias, const at::Tensor& dy) {
  bias.add_gradient(has_own_kernels(dy) && dy.dim() == 2 ? sum_of_rows(dy) : dy.sum(0));
}

void add_weight_gradients(const LinearHolder& layer, const at::Tensor& x, const at::Tensor& dy,
                          const AdapterRows& adapted) {
  const at::Tensor whole = layer.gather_again && layer.keeps_rows() ? layer.gather_again(x) : x;
  if (layer.weight->is_trainable()) layer.weight->add_product(dy.t(), whole);
  if (layer.bias && layer.bias->is_trainable()) add_bias_gradient(*layer.bias, dy);
  if (layer.adapter) layer.adapter->add_weight_gradients(whole, adapted.narrow, adapted.d_narrow, dy);
}

/// The weights' gradients, now or when the context's turn for them comes.
void run_or_defer(const c10::intrusive_ptr<LinearHolder>& layer, const at::Tensor& x, const at::Tensor& dy,
                  const AdapterRows& adapted = {}) {
  if (!layer->is_trainable()) return;
  if (layer->deferred == nullptr) return add_weight_gradients(*layer, x, dy, adapted);
  layer->deferred->add([layer, x = x.defined() ? x.detach() : x, dy = dy.detach(), adapted] {
    add_weight_gradients(*layer, x, dy, adapted);
  });
}

// A parameter is an input so that autograd makes a node even where x needs no gradient; it gets its own by hand. `own`
// are the rows to keep instead of x.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& /*parameter*/,
                            const std::optional<at::Tensor>& own, const c10::intrusive_ptr<LinearHolder>& layer) {
    const at::Tensor& weight = layer->weight->value;
    at::Tensor y = at::linear(x, weight, layer->bias ? c10::optional<at::Tensor>(layer->bias->value) : c10::nullopt);
    at::Tensor narrow;
    if (layer->adapter) narrow = layer->adapter->add_to(y, x);
    const bool keeps_narrow = layer->adapter && layer->adapter->adapter->up->is_trainable();
    saved->save_for_backward(
        {layer->keeps_rows() ? own.value_or(x) : at::Tensor(), weight, keeps_narrow ? narrow : at::Tensor()});
    saved->saved_data["layer"] = at::IValue::make_capsule(layer);
    return y;
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& x = tensors[0];
    const at::Tensor& dy = gradients[0];
    const auto layer = c10::static_intrusive_pointer_cast<LinearHolder>(saved->saved_data["layer"].toCapsule());
    AdapterRows adapted{.narrow = tensors[2].defined() ? tensors[2].detach() : tensors[2], .d_narrow = {}};
    if (layer->adapter) adapted.d_narrow = layer->adapter->narrow_gradient(dy);
    run_or_defer(layer, x, dy, adapted);
    if (!saved->needs_input_grad(0)) return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    at::Tensor dx = at::mm(dy, tensors[1]);
    if (layer->adapter) layer->adapter->add_to_gradient(dx, adapted.d_narrow);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

const at::Tensor& anchor_of(const LinearHolder& layer) {
  const ParameterPtr &weight = layer.weight, &bias = layer.bias;
  if (weight->is_trainable()) return weight->value;
  if (bias && bias->is_trainable()) return bias->value;
  if (!layer.adapter) return weight->value;
  const Adapter& adapter = *layer.adapter->adapter;
  return adapter.down->is_trainable() ? adapter.down->value : adapter.up->value;
}

at::Tensor apply_linear(const at::Tensor& x, const std::optional<at::Tensor>& own,
                        const c10::intrusive_ptr<LinearHolder>& layer) {
  return LinearFunction::apply(x, anchor_of(*layer), own, layer);
}

struct ActivatedHolder : torch::CustomClassHolder {
  c10::intrusive_ptr<LinearHolder> linear;
  MlpActivation activation;
};

struct ActivatedLinearFunction : torch::autograd::Function<ActivatedLinearFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& wide, const at::Tensor& /*parameter*/,
                            const c10::intrusive_ptr<ActivatedHolder>& holder) {
    const LinearHolder& layer = *holder->linear;
    saved->save_for_backward({wide, layer.weight->value});
    saved->saved_data["holder"] = at::IValue::make_capsule(holder);
    return at::linear(holder->activation(wide), layer.weight->value,
                      layer.bias ? c10::optional<at::Tensor>(layer.bias->value) : c10::nullopt);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const auto holder = c10::static_intrusive_pointer_cast<ActivatedHolder>(saved->saved_data["holder"].toCapsule());
    const c10::intrusive_ptr<LinearHolder>& layer = holder->linear;
    const at::Tensor& dy = gradients[0];
    const auto [dwide, inner] = activation_gradient(holder->activation, at::mm(dy, tensors[1]), tensors[0]);
    run_or_defer(layer, inner, dy);
    return {saved->needs_input_grad(0) ? dwide : at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct AddBiasFunction : torch::autograd::Function<AddBiasFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& value,
                            const ParameterPtr& bias) {
    saved->saved_data["bias"] = at::IValue::make_capsule(bias);
    return at::add(x, value);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const auto bias = c10::static_intrusive_pointer_cast<Parameter>(saved->saved_data["bias"].toCapsule());
    if (bias->is_trainable()) add_bias_gradient(*bias, gradients[0]);
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor add_bias(const at::Tensor& x, const ParameterPtr& bias) {
  return AddBiasFunction::apply(x, bias->value, bias);
}

at::Tensor linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias,
                  const RunContext& context) {
  return apply_linear(x, std::nullopt, make_holder(weight, bias, context));
}

at::Tensor activated_linear(const at::Tensor& wide, const MlpActivation& activation, const ParameterPtr& weight,
                            const ParameterPtr& bias, const RunContext& context) {
  if (weight->adapter || !makes_activation_again(wide, activation.is_gated))
    return linear(activation(wide), weight, bias, context);
  auto holder = c10::make_intrusive<ActivatedHolder>();
  holder->linear = make_holder(weight, bias, context);
  holder->activation = activation;
  return ActivatedLinearFunction::apply(wide, anchor_of(*holder->linear), holder);
}

at::Tensor entered_linear(const at::Tensor& x, const ParameterPtr& weight, const ParameterPtr& bias,
                          const RunContext& context, const ArrangeRows& arrange) {
  const auto arranged = [arrange](const at::Tensor& whole) { return arrange ? arrange(whole) : whole; };
  const at::Tensor whole = arranged(context.enter(x));
  if (!context.divides_rows()) return linear(whole, weight, bias, context);
  const auto layer = make_holder(weight, bias, context);
  layer->gather_again = [enter = context.sites->enter, arranged](const at::Tensor& own) {
    return arranged(enter(own));
  };
  return apply_linear(whole, x.detach(), layer);
}

at::Tensor leave_with_bias(at::Tensor summand, const ParameterPtr& bias, const RunContext& context) {
  const at::Tensor rows = context.leave(std::exchange(summand, {}));
  return bias ? add_bias(rows, bias) : rows;
}

}  // namespace weft
