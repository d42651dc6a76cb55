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
  int64_t num_tokens_ = 0;
  int64_t position_delta_ = 0;
  int64_t num_axes_ = 1;
  at::Device device_;
  at::Tensor logits_;
};

}  // namespace weft
