#include "weft/engine/continuation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "weft/base/check.h"

namespace weft {

Continuation::Continuation(const Network& network, const Inputs& prompt, int64_t max_new_tokens)
    : network_(&network),
      cache_(network.decoder().num_layers(), prompt.ids.size(0) + max_new_tokens),
      num_tokens_(prompt.ids.size(0)),
      position_delta_(prompt.position_delta),
      num_axes_(prompt.positions.size(0)),
      device_(prompt.ids.device()) {
  WEFT_CHECK(prompt.samples.runs().size() == 1 && prompt.samples.runs()[0].count == 1, "a prompt of several samples");
  run(prompt);
}

void Continuation::append(int64_t token) {
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(device_);
  Inputs row{.ids = at::full({1}, token, integers),
             .positions = at::full({num_axes_, 1}, num_tokens_ + position_delta_, integers),
             .samples = PackedSegments({1})};
  ++num_tokens_;
  run(row);
}

void Continuation::run(const Inputs& rows) {
  const at::NoGradGuard no_graph;
  const at::Tensor hidden = network_->hidden(rows, {}, &cache_);
  const at::Tensor last = hidden.narrow(0, hidden.size(0) - 1, 1);
  logits_ = network_->decoder().logits(last, {}).squeeze(0);
}

}  // namespace weft
