#pragma once

#include <cstdint>

namespace weft {

/// How long the communication of one block's weights takes, whatever it runs beside.
struct ZeroTraffic {
  double gather_ms = 0;           ///< of values, for the block's forward
  double backward_gather_ms = 0;  ///< of values, for its backward
  double scatter_ms = 0;          ///< of gradients, after its backward

  double total_ms() const { return gather_ms + backward_gather_ms + scatter_ms; }
};

/// What of ZeRO's communication holds a stage up in one microbatch. A block's values travel while the block before it
/// runs, its gradients while the block after it in the backward does, and nothing hides behind anything else.
class ZeroExposure {
 public:
  /// `overlap`: the share of a block's time that really hides communication.
  explicit ZeroExposure(double overlap) : overlap_(overlap) {}

  /// The next blocks in the order of a forward, all alike. Without a backward they have no `backward_ms`.
  void add(const ZeroTraffic& traffic, double forward_ms, double backward_ms, bool has_backward, int64_t count);

  double forward_ms() const { return forward_ms_; }
  /// The last block's values and the first block's gradients have nothing to run beside.
  double backward_ms() const;

 private:
  double exposed(double communication_ms, double compute_ms) const;
  void add_backward(const ZeroTraffic& traffic, double backward_ms);

  double overlap_;
  double forward_ms_ = 0;
  double previous_forward_ms_ = 0;
  // The backward of a block runs beside the values of the one before it and the gradients of the one after it.
  double backward_ms_ = 0;
  bool has_backward_ = false;
  double last_gather_ms_ = 0;
  double gather_before_last_ms_ = 0;
  double last_backward_ms_ = 0;
};

}  // namespace weft
