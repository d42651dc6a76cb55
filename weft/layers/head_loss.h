#pragma once

#include "weft/layers/linear.h"
#include "weft/layers/loss_terms.h"

namespace weft {

/// The cross entropy of entered_linear(x, head) summed over rows, without ever holding all logits: those of some rows
/// are made at a time, and again going back. A weight gradient that is deferred keeps its rows and all gradients of
/// logits until its turn. The head has no bias and no adapter. `rows_together`: how many rows at a time, 0 for
/// rows_of_logits.
at::Tensor head_loss_sum(const at::Tensor& x, const ParameterPtr& head, const RunContext& context,
                         const ArrangeRows& arrange, const at::Tensor& targets, const LossFormPtr& form,
                         int64_t rows_together = 0);

}  // namespace weft
