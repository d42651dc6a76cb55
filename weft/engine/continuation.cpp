#include "weft/engine/continuation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "weft/base/check.h"

namespace weft {

Continuation::Continuation(const Network& network, const Inputs& prompt, int64_t max_new_tokens)
    : network_(&network),
      cache_(network.decoder().num_layers(), prompt.ids.size(0) + max_new_tokens),
      last_positions_(prompt.positions.narrow(1, prompt.positions.size(1) - 1, 1)) {
  WEFT_CHECK(prompt.samples.runs().size() == 1 && prompt.samples.runs()[0].count == 1, "a prompt of several samples");
  run(prompt);
}

void Continuation::append(int64_t token) {
  // Counting on from the last token, on every axis: where a video's time runs past the text after it, the new tokens
  // stand as they would in a longer prompt.
  last_positions_ = last_positions_ + 1;
  run({.ids = at::full({1}, token, last_positions_.options()),
       .positions = last_positions_,
       .samples = PackedSegments({1})});
}

void Continuation::run(const Inputs& rows) {
  const at::NoGradGuard no_graph;
  const at::Tensor hidden = network_->hidden(rows, {}, &cache_);
  const at::Tensor last = hidden.narrow(0, hidden.size(0) - 1, 1);
  logits_ = network_->decoder().logits(last, {}).squeeze(0);
}

}  // namespace weft
