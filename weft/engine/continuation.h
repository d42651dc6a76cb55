#pragma once

#include "weft/models/network.h"

namespace weft {

/// A prompt and the tokens that follow it, one at a time: keys and values of everything before are kept, so that a new
/// token costs one row.
class Continuation {
 public:
  /// Computes the prompt, one sample on the network's device; at most `max_new_tokens` may be appended to it. The
  /// network must outlive this.
  Continuation(const Network& network, const Inputs& prompt, int64_t max_new_tokens);

  /// Of the next token, [vocabulary].
  const at::Tensor& logits() const { return logits_; }
  void append(int64_t token);

 private:
  void run(const Inputs& rows);

  const Network* network_;
  KvCache cache_;
  at::Tensor last_positions_;  ///< [axes, 1]
  at::Tensor logits_;
};

}  // namespace weft
