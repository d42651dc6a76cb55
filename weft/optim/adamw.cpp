#include "weft/optim/adamw.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "weft/base/check.h"

namespace weft {

void update_adamw(const AdamWState& state, const at::Tensor& gradient, const AdamWSettings& settings,
                  double learning_rate, int64_t step) {
  WEFT_CHECK(gradient.scalar_type() == state.master.scalar_type() && gradient.numel() == state.master.numel(),
             "{} {} gradients for {} {} weights", gradient.numel(), c10::toString(gradient.scalar_type()),
             state.master.numel(), c10::toString(state.master.scalar_type()));
  if (gradient.numel() == 0) return;
  const at::Tensor steps = at::full({}, static_cast<double>(step), gradient.options().dtype(at::kFloat));
  at::_fused_adamw_({state.master}, {gradient}, {state.moment1}, {state.moment2}, {}, {steps}, learning_rate,
                    settings.beta1, settings.beta2, settings.weight_decay, settings.epsilon, /*amsgrad=*/false,
                    /*maximize=*/false);
}

}  // namespace weft
