#include "weft/layers/head_loss.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/base/loss_rows.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct HeadHolder : torch::CustomClassHolder {
  ParameterPtr weight;
  LossFormPtr form;
  WeightGradients* deferred = nullptr;
  ArrangeRows gather_again;  ///< makes whole what was kept; nothing: it is
  int64_t rows_together = 0;

  /// Calls visit(first row, rows) for rows whose logits are there together, once if there are none.
  template <typename Visit>
  void each_chunk(const at::Tensor& x, Visit visit) const {
    const int64_t rows = x.size(0);
    int64_t row = 0;
    do {
      const int64_t count = std::min(rows_together, rows - row);
      visit(row, count);
      row += count;
    } while (row < rows);
  }
};

// A parameter is an input so that autograd makes a node even where x needs no gradient; it gets its own by hand. `own`
// are the rows to keep instead of x.
struct HeadLossFunction : torch::autograd::Function<HeadLossFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& own, const at::Tensor& targets,
                            const c10::intrusive_ptr<HeadHolder>& head) {
    LossTargets here;
    std::vector<at::Tensor> sums, off;
    head->each_chunk(x, [&](int64_t row, int64_t rows) {
      const at::Tensor logits = at::linear(x.narrow(0, row, rows), weight);
      if (!here.places.defined()) here = targets_of(targets, logits, *head->form);
      LossTerms part = own_terms(logits, here.of_rows(row, rows), *head->form);
      sums.push_back(std::move(part.sums));
      off.push_back(std::move(part.off));
    });
    const LossTerms terms = terms_of_all({at::cat(sums), at::cat(off)}, *head->form);
    saved->save_for_backward({own.value_or(x), weight, here.places, here.is_here, terms.sums});
    saved->saved_data["head"] = at::IValue::make_capsule(head);
    return loss_of(terms, *head->form);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const auto head = c10::static_intrusive_pointer_cast<HeadHolder>(saved->saved_data["head"].toCapsule());
    const at::Tensor x = head->gather_again ? head->gather_again(tensors[0]) : tensors[0].detach();
    const at::Tensor& weight = tensors[1];
    const LossTargets here{tensors[2], tensors[3]};
    at::Tensor dx = saved->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    head->each_chunk(x, [&](int64_t row, int64_t rows) {
      const at::Tensor part = x.narrow(0, row, rows);
      const at::Tensor logits = at::linear(part, weight);
      turn_into_gradient(logits, tensors[4].narrow(0, row, rows), here.of_rows(row, rows), gradients[0], *head->form);
      add_weight_gradient(head, part, logits);
      if (!dx.defined()) return;
      at::Tensor of_part = dx.narrow(0, row, rows);
      at::mm_out(of_part, logits, weight);
    });
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static void add_weight_gradient(const c10::intrusive_ptr<HeadHolder>& head, const at::Tensor& x,
                                  const at::Tensor& of_logits) {
    if (!head->weight->is_trainable()) return;
    if (head->deferred == nullptr) return head->weight->add_product(of_logits.t(), x);
    head->deferred->add([head, x, of_logits] { head->weight->add_product(of_logits.t(), x); });
  }
};

}  // namespace

at::Tensor head_loss_sum(const at::Tensor& x, const ParameterPtr& head, const RunContext& context,
                         const ArrangeRows& arrange, const at::Tensor& targets, const LossFormPtr& form,
                         int64_t rows_together) {
  WEFT_CHECK(!head->adapter, "{} has an adapter, whose gradients need all rows together", head->name());
  const auto arranged = [arrange](const at::Tensor& whole) { return arrange ? arrange(whole) : whole; };
  auto holder = c10::make_intrusive<HeadHolder>();
  holder->weight = head;
  holder->form = form;
  holder->deferred = context.deferred;
  const int64_t classes = head->value.size(0);
  holder->rows_together = rows_together > 0 ? rows_together : rows_of_logits(classes, x.is_cpu());
  std::optional<at::Tensor> own;
  if (context.divides_rows()) {
    own = x.detach();
    holder->gather_again = [enter = context.sites->enter, arranged](const at::Tensor& kept) {
      return arranged(enter(kept));
    };
  }
  const at::Tensor rows = arranged(context.enter(x));  // all others are let go of before there are logits
  return HeadLossFunction::apply(rows, head->value, own, targets, holder);
}

}  // namespace weft
