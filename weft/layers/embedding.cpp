#include "weft/layers/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_copy.h>
#include <torch/csrc/autograd/custom_function.h>

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbedFunction : torch::autograd::Function<EmbedFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& table, const at::Tensor& ids, int64_t padding_id,
                            const ParameterPtr& parameter) {
    saved->save_for_backward({ids});
    saved->saved_data["padding"] = padding_id;
    saved->saved_data["table"] = at::IValue::make_capsule(parameter);
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor ids = saved->get_saved_variables()[0];
    const auto table = c10::static_intrusive_pointer_cast<Parameter>(saved->saved_data["table"].toCapsule());
    const at::Tensor dy = gradients[0].to(table->gradient_type);
    if (table->gradient.defined()) {
      const int64_t padding = saved->saved_data["padding"].toInt();
      at::Tensor rows = dy;
      if (padding >= 0) rows = dy.masked_fill((ids == padding).unsqueeze(1), 0);
      table->gradient.index_add_(0, ids, rows);
    } else {
      table->add_gradient(
          at::embedding_dense_backward(dy, ids, table->value.size(0), saved->saved_data["padding"].toInt(), false));
    }
    return {at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Autograd's own index_copy would keep the rows only to read their shape.
struct PlaceRowsFunction : torch::autograd::Function<PlaceRowsFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& positions,
                            const at::Tensor& rows) {
    saved->save_for_backward({positions});
    return at::index_copy(x, 0, positions, rows);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor positions = saved->get_saved_variables()[0];
    const at::Tensor& dy = gradients[0];
    return {saved->needs_input_grad(0) ? dy.index_fill(0, positions, 0) : at::Tensor(), at::Tensor(),
            saved->needs_input_grad(2) ? dy.index_select(0, positions) : at::Tensor()};
  }
};

/// Autograd's own index_add would keep the rows, too.
struct AddRowsFunction : torch::autograd::Function<AddRowsFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& positions,
                            const at::Tensor& rows) {
    saved->save_for_backward({positions});
    return at::index_add(x, 0, positions, rows);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::Tensor& dy = gradients[0];
    return {saved->needs_input_grad(0) ? dy : at::Tensor(), at::Tensor(),
            saved->needs_input_grad(2) ? dy.index_select(0, saved->get_saved_variables()[0]) : at::Tensor()};
  }
};

}  // namespace

at::Tensor embed(const at::Tensor& ids, const ParameterPtr& table, int64_t padding_id) {
  if (!table->is_trainable()) return at::embedding(table->value, ids);
  return EmbedFunction::apply(table->value, ids, padding_id, table);
}

at::Tensor place_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows) {
  return PlaceRowsFunction::apply(x, positions, rows.to(x.scalar_type()));
}

at::Tensor add_rows(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& rows) {
  return AddRowsFunction::apply(x, positions, rows.to(x.scalar_type()));
}

}  // namespace weft
