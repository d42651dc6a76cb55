#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "weft/comm/group.h"
#include "weft/layers/loss_settings.h"

namespace weft {

// What a cross entropy is made of, for those who have logits of some rows.

/// The classes of a loss: whose logits a rank has, and what is minimised.
struct LossForm : torch::CustomClassHolder {
  LossSettings settings;
  int64_t num_classes = 0;     ///< of all ranks
  int64_t first_class = 0;     ///< here
  std::optional<Group> ranks;  ///< that have a part of the classes each; nothing: all are here

  double of_target() const { return 1 - settings.label_smoothing; }
  double of_others() const { return settings.label_smoothing / static_cast<double>(num_classes); }
};
using LossFormPtr = c10::intrusive_ptr<LossForm>;

/// Targets among the classes of this rank.
struct LossTargets {
  at::Tensor places;
  at::Tensor is_here;  ///< [rows, 1]; undefined where all are, or where kernels see to it

  LossTargets of_rows(int64_t row, int64_t rows) const;
};
/// `logits` are of this rank's classes, of any rows.
LossTargets targets_of(const at::Tensor& targets, const at::Tensor& logits, const LossForm& form);

/// Of every row: the logarithm of its sum of exponentials, and what is taken off that.
struct LossTerms {
  at::Tensor sums;
  at::Tensor off;
};
/// Of the classes here.
LossTerms own_terms(const at::Tensor& logits, const LossTargets& targets, const LossForm& form);
/// Of all classes; ranks that have a part of them call it alike.
LossTerms terms_of_all(LossTerms own, const LossForm& form);
/// The sum over rows.
at::Tensor loss_of(const LossTerms& terms, const LossForm& form);

/// Logits become their gradients in place. `sums` are those of all classes.
void turn_into_gradient(const at::Tensor& logits, const at::Tensor& sums, const LossTargets& targets,
                        const at::Tensor& gradient, const LossForm& form);

}  // namespace weft
