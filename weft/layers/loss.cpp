#include "weft/layers/loss.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"
#include "weft/base/loss_rows.h"
#include "weft/layers/own_kernels.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Calls visit(first row, rows) for rows that are looked at together.
template <typename Visit>
void each_chunk(const at::Tensor& logits, Visit visit) {
  const int64_t rows = logits.size(0);
  const int64_t step = rows_of_loss(logits.size(1), logits.device().is_cpu());
  for (int64_t row = 0; row < rows; row += step) visit(row, std::min(step, rows - row));
}

/// The logarithm of every row's sum of exponentials, [rows, 1].
at::Tensor log_sums(const at::Tensor& logits, at::ScalarType exact) {
  const at::Tensor sums = at::empty({logits.size(0), 1}, logits.options().dtype(exact));
  each_chunk(logits, [&](int64_t row, int64_t rows) {
    at::Tensor part = sums.narrow(0, row, rows);
    at::logsumexp_out(part, logits.narrow(0, row, rows).to(exact), {1}, /*keepdim=*/true);
  });
  return sums;
}

/// What a rank has of the loss's classes, and what is minimised.
struct LossForm : torch::CustomClassHolder {
  LossSettings settings;
  int64_t num_classes = 0;  ///< of all ranks

  double of_target() const { return 1 - settings.label_smoothing; }
  double of_others() const { return settings.label_smoothing / static_cast<double>(num_classes); }
};
using LossFormPtr = c10::intrusive_ptr<LossForm>;

LossFormPtr form_of(const LossSettings& settings, int64_t num_classes) {
  auto form = c10::make_intrusive<LossForm>();
  form->settings = settings;
  form->num_classes = num_classes;
  return form;
}

LossFormPtr form_in(AutogradContext* saved) {
  return c10::static_intrusive_pointer_cast<LossForm>(saved->saved_data["form"].toCapsule());
}

/// The logits' sum over a row, [rows, 1].
at::Tensor row_sums(const at::Tensor& logits, at::ScalarType exact) {
  const at::Tensor sums = at::empty({logits.size(0), 1}, logits.options().dtype(exact));
  each_chunk(logits, [&](int64_t row, int64_t rows) {
    sums.narrow(0, row, rows).copy_(logits.narrow(0, row, rows).to(exact).sum(1, /*keepdim=*/true));
  });
  return sums;
}

/// What is taken off a row's logarithm: the target's logit or, with smoothing, a mean of all. Of this rank's classes.
at::Tensor taken_off(const at::Tensor& logits, at::Tensor chosen, const LossForm& form) {
  if (form.settings.label_smoothing == 0) return chosen;
  return chosen.mul_(form.of_target()).add_(row_sums(logits, chosen.scalar_type()), form.of_others());
}

at::Tensor loss_of(const at::Tensor& sums, const at::Tensor& off, const LossForm& form) {
  const at::Tensor rows = at::sub(sums, off);
  if (form.settings.z_loss != 0) rows.add_(sums.square(), form.settings.z_loss);
  return rows.sum();
}

/// The gradient of every logit: in place. `minus_one` is added at the targets.
void turn_into_gradient(const at::Tensor& logits, const at::Tensor& sums, const at::Tensor& targets,
                        const at::Tensor& minus_one, const at::Tensor& gradient, const LossForm& form) {
  each_chunk(logits, [&](int64_t row, int64_t rows) {
    const at::Tensor part = logits.narrow(0, row, rows);
    const at::Tensor exact = part.to(sums.scalar_type());  // the logits themselves, unless they are half precision
    exact.sub_(sums.narrow(0, row, rows)).exp_();
    if (form.settings.z_loss != 0) exact.mul_(sums.narrow(0, row, rows).mul(2 * form.settings.z_loss).add_(1));
    if (form.settings.label_smoothing != 0) exact.sub_(form.of_others());
    exact.scatter_add_(1, targets.narrow(0, row, rows), minus_one.narrow(0, row, rows));
    exact.mul_(gradient);
    if (!exact.is_same(part)) part.copy_(exact);
  });
}

/// Own kernels know the plain cross entropy alone.
bool has_own_loss(const at::Tensor& logits, const LossForm& form) {
  return has_own_kernels(logits) && form.settings.label_smoothing == 0 && form.settings.z_loss == 0;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& logits, const at::Tensor& targets,
                            const LossFormPtr& form) {
    saved->saved_data["form"] = at::IValue::make_capsule(form);
    if (has_own_loss(logits, *form)) {
      const RowLosses losses = row_losses(logits, targets);
      saved->save_for_backward({logits, targets, losses.sums});
      return at::sub(losses.sums, losses.chosen).sum();
    }
    const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor sums = log_sums(logits, exact);
    const at::Tensor chosen = at::gather(logits, 1, targets.unsqueeze(1)).to(exact);
    saved->save_for_backward({logits, targets, sums});
    return loss_of(sums, taken_off(logits, chosen, *form), *form);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& sums = tensors[2];
    const LossFormPtr form = form_in(saved);
    if (has_own_loss(tensors[0], *form)) {
      turn_into_gradient_(tensors[0], sums, tensors[1], gradients[0]);
      return {tensors[0].detach(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor minus_one = at::full({1, 1}, -form->of_target(), sums.options()).expand_as(sums);
    turn_into_gradient(tensors[0], sums, tensors[1].unsqueeze(1), minus_one, gradients[0], *form);
    return {tensors[0].detach(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor reduced(const at::Tensor& x, Group& group, Reduction reduction) {
  const at::Tensor result = x.contiguous();
  group.all_reduce(buffer_of(result), reduction).wait();
  return result;
}

/// Of the classes of all ranks, given those of each one's.
at::Tensor sums_of_all(const at::Tensor& own_sums, Group& group) {
  const at::Tensor largest = reduced(own_sums.clone(), group, Reduction::kMax);
  const at::Tensor total = reduced(at::sub(own_sums, largest).exp_(), group, Reduction::kSum);
  return total.log_().add_(largest);
}

/// A target's place among the classes of this rank, and whether it is one of them.
struct LocalTargets {
  at::Tensor places;  ///< 0 where it is not
  at::Tensor is_here;
};

LocalTargets local_targets(const at::Tensor& targets, int64_t first_class, int64_t num_classes) {
  const at::Tensor shifted = targets - first_class;
  const at::Tensor is_here = shifted.ge(0).logical_and_(shifted.lt(num_classes)).unsqueeze(1);
  return {at::where(is_here, shifted.unsqueeze(1), at::zeros_like(shifted).unsqueeze(1)), is_here};
}

struct VocabularyCrossEntropyFunction : torch::autograd::Function<VocabularyCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& logits, const at::Tensor& targets,
                            int64_t first_class, Group group, const LossFormPtr& form) {
    saved->saved_data["form"] = at::IValue::make_capsule(form);
    if (has_own_loss(logits, *form)) {
      const at::Tensor places = targets - first_class;  // those that are not here are no class of these rows
      const RowLosses losses = row_losses(logits, places);
      const at::Tensor sums = sums_of_all(losses.sums, group);
      const at::Tensor chosen = reduced(losses.chosen, group, Reduction::kSum);
      saved->save_for_backward({logits, places, at::Tensor(), sums});
      return at::sub(sums, chosen).sum();
    }
    const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const LocalTargets local = local_targets(targets, first_class, logits.size(1));
    const at::Tensor sums = sums_of_all(log_sums(logits, exact), group);
    const at::Tensor here = at::gather(logits, 1, local.places).to(exact).masked_fill_(local.is_here.logical_not(), 0);
    const at::Tensor off = reduced(taken_off(logits, here, *form), group, Reduction::kSum);
    saved->save_for_backward({logits, local.places, local.is_here, sums});
    return loss_of(sums, off, *form);
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const at::NoGradGuard no_graph;
    const variable_list tensors = saved->get_saved_variables();
    const at::Tensor& sums = tensors[3];
    const LossFormPtr form = form_in(saved);
    if (has_own_loss(tensors[0], *form)) {
      turn_into_gradient_(tensors[0], sums, tensors[1], gradients[0]);
      return {tensors[0].detach(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor minus_one_here = tensors[2].to(sums.scalar_type()).mul_(-form->of_target());
    turn_into_gradient(tensors[0], sums, tensors[1], minus_one_here, gradients[0], *form);
    return {tensors[0].detach(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, int64_t first_class,
                             const Group& vocabulary, const LossSettings& settings, int64_t num_classes) {
  WEFT_CHECK(settings.label_smoothing == 0 || num_classes > 0, "smoothing over {} classes", num_classes);
  return VocabularyCrossEntropyFunction::apply(logits, targets, first_class, vocabulary,
                                               form_of(settings, num_classes));
}

at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings) {
  return CrossEntropyFunction::apply(logits, targets, form_of(settings, logits.size(1)));
}

}  // namespace weft
