#include "weft/layers/linear.h"

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
};

c10::intrusive_ptr<LinearHolder> make_holder(const ParameterPtr& weight, const ParameterPtr& bias,
                                             const RunContext& context) {
  auto layer = c10::make_intrusive<LinearHolder>();
  layer->weight = weight;
  layer->bias = bias;
  layer->deferred = context.deferred;
  return layer;
}

void add_bias_gradient(Parameter& bias, const at::Tensor& dy) {
  bias.add_gradient(has_own_kernels(dy) && dy.dim() == 2 ? sum_of_rows(dy) : dy.sum(0));
}

void add_weight_gradients(const LinearHolder& layer, const at::Tensor& x, const at::Tensor& dy) {
  if (layer.weight->is_trainable()) layer.weight->add_product(dy.t(), layer.gather_again ? layer.gather_again(x) : x);
  if (layer.bias && layer.bias->is_trainable()) add_bias_gradient(*layer.bias, dy);
}

/// The weights' gradients, now or when the context's turn for them comes.
void run_or_defer(const c10::intrusive_ptr<LinearHolder>& layer, const at::Tensor& x, const at::Tensor& dy) {
  const bool has_weights = layer->weight->is_trainable() || (layer->bias && layer->bias->is_trainable());
  if (has_weights && layer->deferred != nullptr) {
    layer->deferred->add(
        [layer, x = x.defined() ? x.detach() : x, dy = dy.detach()] { add_weight_gradients(*layer, x, dy); });
  } else if (has_weights) {
    add_weight_gradients(*layer, x, dy);
  }
}

// A parameter is an input so that autograd makes a node even where x needs no gradient; it gets its own by hand. `own`
// are the rows to keep instead of x.
struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& /*parameter*/,
                            const std::optional<at::Tensor>& own, const c10::intrusive_ptr<LinearHolder>& layer) {
    const at::Tensor& weight = layer->weight->value;
    saved->save_for_backward({layer->weight->is_trainable() ? own.value_or(x) : at::Tensor(), weight});
    saved->saved_data["layer"] = at::IValue::make_capsule(layer);
    return at::linear(x, weight, layer->bias ? c10::optional<at::Tensor>(layer->bias->value) : c10::nullopt);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& x = tensors[0];
    const at::Tensor& dy = gradients[0];
    const auto layer = c10::static_intrusive_pointer_cast<LinearHolder>(saved->saved_data["layer"].toCapsule());
    run_or_defer(layer, x, dy);
    const at::Tensor dx = saved->needs_input_grad(0) ? at::mm(dy, tensors[1]) : at::Tensor();
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

const at::Tensor& anchor_of(const LinearHolder& layer) {
  const ParameterPtr &weight = layer.weight, &bias = layer.bias;
  const bool is_bias_alone = bias && bias->is_trainable() && !weight->is_trainable();
  return is_bias_alone ? bias->value : weight->value;
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
  const at::Tensor y = apply_linear(x, std::nullopt, make_holder(weight, bias, context));
  return weight->adapter ? add_adapter(y, x, *weight->adapter, context) : y;
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
  const at::Tensor y = apply_linear(whole, x.detach(), layer);
  return weight->adapter ? add_adapter(y, whole, *weight->adapter, context, x.detach(), layer->gather_again) : y;
}

}  // namespace weft
