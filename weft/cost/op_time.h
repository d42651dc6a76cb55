#pragma once

#include "weft/cost/block_setting.h"
#include "weft/program/op.h"
#include "weft/spec/cluster.h"
#include "weft/spec/segments.h"

namespace weft {

/// One rank's time in an operator, without communication, and how many kernels that is.
struct OpTime {
  double forward_ms = 0;
  double input_gradient_ms = 0;
  double weight_gradient_ms = 0;
  double forward_kernels = 0;
  double input_gradient_kernels = 0;
  double weight_gradient_kernels = 0;

  OpTime& operator+=(const OpTime& other) {
    forward_ms += other.forward_ms;
    input_gradient_ms += other.input_gradient_ms;
    weight_gradient_ms += other.weight_gradient_ms;
    forward_kernels += other.forward_kernels;
    input_gradient_kernels += other.input_gradient_kernels;
    weight_gradient_kernels += other.weight_gradient_kernels;
    return *this;
  }
};

/// Rates of a device as kernels see them.
struct DeviceRates {
  double flops_per_ms = 0;  ///< of large products
  double bytes_per_ms = 0;  ///< of memory-bound kernels
  double kernel_ms = 0;
  double passes = 1;  ///< over memory, and kernels, of a memory-bound operator
  double half_size = 0;
  double attention_products = 0;
  double fused_attention = 0;
};
/// The device must have the precision.
DeviceRates rates_of(const Cluster& cluster, Precision precision);

/// What the busiest of an expert group's ranks gets, in units of the mean of `rows` choices a rank. A router that
/// prefers nobody deals choices out like dice: a rank's number scatters by its root, and the largest of n lies about
/// √(2 ln n) deviations above the mean.
double busiest_rank(int64_t num_ranks, double rows);

/// A product of rows × in with in × out: roofline, with a share of the peak that falls with short dims.
double product_ms(const DeviceRates& rates, Precision precision, double rows, double in, double out);

/// `tokens` and `segments` are the microbatch's, before any division.
OpTime analytic_time(const Op& op, const BlockSetting& setting, const DeviceRates& rates, const Segments& segments,
                     double tokens);

}  // namespace weft
