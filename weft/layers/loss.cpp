#include "weft/layers/loss.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/layers/loss_terms.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& logits, const at::Tensor& targets,
                            const LossFormPtr& form) {
    saved->saved_data["form"] = at::IValue::make_capsule(form);
    const LossTargets here = targets_of(targets, logits, *form);
    const LossTerms terms = terms_of_all(own_terms(logits, here, *form), *form);
    saved->save_for_backward({logits, here.places, here.is_here, terms.sums});
    return loss_of(terms, *form);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const auto form = c10::static_intrusive_pointer_cast<LossForm>(saved->saved_data["form"].toCapsule());
    turn_into_gradient(tensors[0], tensors[3], {tensors[1], tensors[2]}, gradients[0], *form);
    return {tensors[0].detach(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, int64_t first_class,
                             const Group& vocabulary, const LossSettings& settings, int64_t num_classes) {
  WEFT_CHECK(settings.label_smoothing == 0 || num_classes > 0, "smoothing over {} classes", num_classes);
  auto form = c10::make_intrusive<LossForm>();
  form->settings = settings;
  form->num_classes = num_classes;
  form->first_class = first_class;
  form->ranks = vocabulary;
  return CrossEntropyFunction::apply(logits, targets, form);
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings) {
  auto form = c10::make_intrusive<LossForm>();
  form->settings = settings;
  form->num_classes = logits.size(1);
  return CrossEntropyFunction::apply(logits, targets, form);
}

}  // namespace weft
