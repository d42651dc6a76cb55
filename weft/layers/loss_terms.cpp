#include "weft/layers/loss_terms.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "weft/base/loss_rows.h"
#include "weft/layers/own_kernels.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

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

/// Own kernels know the plain cross entropy alone.
bool has_own_loss(const at::Tensor& logits, const LossForm& form) {
  return has_own_kernels(logits) && form.settings.is_plain();
}

at::Tensor reduced(const at::Tensor& x, Group group, Reduction reduction) {
  const at::Tensor result = x.contiguous();
  group.all_reduce(buffer_of(result), reduction).wait();
  return result;
}

/// Of the classes of all ranks, given those of each one's.
at::Tensor sums_of_all(const at::Tensor& own_sums, const Group& group) {
  const at::Tensor largest = reduced(own_sums.clone(), group, Reduction::kMax);
  const at::Tensor total = reduced(at::sub(own_sums, largest).exp_(), group, Reduction::kSum);
  return total.log_().add_(largest);
}

}  // namespace

LossTargets LossTargets::of_rows(int64_t row, int64_t rows) const {
  return {places.narrow(0, row, rows), is_here.defined() ? is_here.narrow(0, row, rows) : is_here};
}

LossTargets targets_of(const at::Tensor& targets, const at::Tensor& logits, const LossForm& form) {
  if (!form.ranks) return {targets, {}};
  if (has_own_loss(logits, form)) return {targets - form.first_class, {}};  // kernels pass over what is no class here
  const at::Tensor shifted = targets - form.first_class;
  const at::Tensor is_here = shifted.ge(0).logical_and_(shifted.lt(logits.size(1))).unsqueeze(1);
  return {at::where(is_here, shifted.unsqueeze(1), at::zeros_like(shifted).unsqueeze(1)).squeeze(1), is_here};
}

LossTerms own_terms(const at::Tensor& logits, const LossTargets& targets, const LossForm& form) {
  if (has_own_loss(logits, form)) {
    const RowLosses losses = row_losses(logits, targets.places);
    return {losses.sums, losses.chosen};
  }
  const at::ScalarType exact = logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor sums = log_sums(logits, exact);
  at::Tensor chosen = at::gather(logits, 1, targets.places.unsqueeze(1)).to(exact);
  if (targets.is_here.defined()) chosen.masked_fill_(targets.is_here.logical_not(), 0);
  return {sums, taken_off(logits, chosen, form)};
}

LossTerms terms_of_all(LossTerms own, const LossForm& form) {
  if (!form.ranks) return own;
  own.sums = sums_of_all(own.sums, *form.ranks);
  own.off = reduced(own.off, *form.ranks, Reduction::kSum);
  return own;
}

at::Tensor loss_of(const LossTerms& terms, const LossForm& form) {
  const at::Tensor rows = at::sub(terms.sums, terms.off);
  if (form.settings.z_loss != 0) rows.add_(terms.sums.square(), form.settings.z_loss);
  return rows.sum();
}

void turn_into_gradient(const at::Tensor& logits, const at::Tensor& sums, const LossTargets& targets,
                        const at::Tensor& gradient, const LossForm& form) {
  if (has_own_loss(logits, form)) return turn_into_gradient_(logits, sums, targets.places, gradient);
  const at::Tensor at_targets = targets.is_here.defined()
                                    ? targets.is_here.to(sums.scalar_type()).mul_(-form.of_target())
                                    : at::full({1, 1}, -form.of_target(), sums.options()).expand_as(sums);
  const at::Tensor places = targets.places.unsqueeze(1);
  each_chunk(logits, [&](int64_t row, int64_t rows) {
    const at::Tensor part = logits.narrow(0, row, rows);
    const at::Tensor exact = part.to(sums.scalar_type());  // the logits themselves, unless they are half precision
    exact.sub_(sums.narrow(0, row, rows)).exp_();
    if (form.settings.z_loss != 0) exact.mul_(sums.narrow(0, row, rows).mul(2 * form.settings.z_loss).add_(1));
    if (form.settings.label_smoothing != 0) exact.sub_(form.of_others());
    exact.scatter_add_(1, places.narrow(0, row, rows), at_targets.narrow(0, row, rows));
    exact.mul_(gradient);
    if (!exact.is_same(part)) part.copy_(exact);
  });
}

}  // namespace weft
