#include "weft/cost/op_time.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/local_shape.h"
#include "weft/program/adapter_ops.h"

namespace weft {
namespace {

// Bytes that unfused attention moves for each score, in half precision: softmax reads and writes, dropout too, with a
// mask of one byte. Going back, both read what they kept as well.
constexpr double kSoftmaxPasses = 2;
constexpr double kSoftmaxBackwardPasses = 3;
constexpr double kDropoutPasses = 2;
/// Fused attention computes five products going back, where the forward has two.
constexpr double kFusedBackwardFactor = 2.5;
// Kernels of one block of a ring: attention, then what joins its result or its gradients with the others'.
constexpr double kRingForwardKernels = 4;
constexpr double kRingBackwardKernels = 5;
constexpr double kSendKernels = 2;

class OpPricer {
 public:
  OpPricer(const Op& op, const BlockSetting& setting, const DeviceRates& rates, const Segments& segments, double tokens)
      : op_(op),
        setting_(setting),
        rates_(rates),
        segments_(segments),
        tokens_(tokens),
        rows_(op.rows.value() * tokens / as_double(setting.cp) / as_double(row_share(op, setting))),
        bytes_(num_bytes(setting.precision)) {}

  OpTime operator()(const Matmul& m) const {
    const LocalMatmul local = local_matmul(m, op_.split(), setting_.share());
    const double copies = as_double(local.experts);
    const double rows =
        rows_ / copies * (m.experts > 1 && !setting_.even_experts ? busiest_rank(setting_.ep, rows_) : 1);
    const double in = as_double(local.in), out = as_double(local.out);
    const auto product = [&](double r, double k, double n) {
      return copies * product_ms(rates_, setting_.precision, r, k, n) + rates_.kernel_ms;
    };
    return {.forward_ms = product(rows, in, out),
            .input_gradient_ms = product(rows, out, in),
            .weight_gradient_ms = product(in, rows, out),
            .forward_kernels = 1,
            .input_gradient_kernels = 1,
            .weight_gradient_kernels = 1};
  }

  OpTime operator()(const Attention& a) const {
    const double heads =
        as_double(heads_after_ulysses(a, setting_.share(), setting_.cp_ulysses).queries * setting_.cp_ulysses);
    return setting_.attention == AttentionKernel::kFused ? fused(a, heads) : unfused(a, heads);
  }

  OpTime operator()(const Norm& n) const {
    const double elements = rows_ * as_double(n.width * n.groups) / as_double(feature_share(op_, setting_));
    return streamed(2 * elements * bytes_, 3 * elements * bytes_, 1);
  }

  OpTime operator()(const Pointwise& p) const {
    const double share = as_double(feature_share(op_, setting_));
    const double moved = rows_ * as_double(p.elements_in + p.elements_out) / share * bytes_;
    const double masks = rows_ * as_double(p.dropped) / share;
    // What an adapter gives is scaled in place and added in place: two kernels that read three times and write twice.
    if (is_adapter(op_)) return streamed(moved * 5 / 6, 0, 0, 2);
    // A sum hands its gradient on as it is; only dropout has something to do.
    if (p.is_sum) return streamed(moved + masks, masks * (2 * bytes_ + kMaskBytes), p.dropped > 0 ? 1 : 0);
    return streamed(moved + masks, moved + masks + rows_ * as_double(p.elements_in) / share * bytes_, 1);
  }

  OpTime operator()(const Lookup& l) const {
    const double moved = 2 * rows_ * as_double(l.width) * bytes_;
    OpTime time = streamed(moved, 0, 0, 1);
    // The table's gradient is added up row by row.
    time.weight_gradient_ms = 2 * moved / rates_.bytes_per_ms + rates_.kernel_ms;
    time.weight_gradient_kernels = 1;
    return time;
  }

  OpTime operator()(const CrossEntropy& c) const {
    const double elements = rows_ * as_double(c.classes) / as_double(feature_share(op_, setting_));
    // Logits to fp32, their largest, their exponentials' sum; then the gradient from the kept softmax.
    OpTime time = streamed(elements * (bytes_ + 4 * kFp32Bytes), elements * (kFp32Bytes + 2 * bytes_), 1, 1);
    time.forward_ms += 2 * rates_.kernel_ms;
    time.forward_kernels = 3;
    return time;
  }

 private:
  /// A memory-bound operator: its passes forwards and, unless it has none, backwards.
  OpTime streamed(double forward_bytes, double backward_bytes, double backward_kernels) const {
    return streamed(forward_bytes, backward_bytes, backward_kernels, rates_.passes);
  }
  OpTime streamed(double forward_bytes, double backward_bytes, double backward_kernels, double passes) const {
    return {.forward_ms = passes * (forward_bytes / rates_.bytes_per_ms + rates_.kernel_ms),
            .input_gradient_ms = passes * (backward_bytes / rates_.bytes_per_ms + backward_kernels * rates_.kernel_ms),
            .forward_kernels = passes,
            .input_gradient_kernels = passes * backward_kernels};
  }

  /// In a ring, queries meet the keys of one rank after the other. Of a causal mask, a block with another's keys has
  /// all queries or all keys, and half of the others.
  double block_share(const Attention& a) const { return a.mask == Mask::kFull ? 1 : 0.75; }
  double ring_steps(const Attention& a) const {
    return a.mask == Mask::kWindowed ? 0 : as_double(setting_.cp / setting_.cp_ulysses) - 1;
  }

  OpTime fused(const Attention& a, double heads) const {
    // Scores are computed in tiles, which do not fill at the edges of a block: each of its queries and keys brings half
    // a half size of scores that are not needed.
    const double edges = 2 * rows_ * (1 + ring_steps(a) * block_share(a));
    const double pairs = num_attention_pairs(a, segments_) / as_double(setting_.cp) + rates_.half_size / 2 * edges;
    const double flops = 4 * pairs * heads * as_double(a.head_dim);
    const double moved =
        rows_ * as_double((2 * a.heads + 2 * a.kv_heads) * a.head_dim) / as_double(setting_.tp) * bytes_;
    const double by_flops = flops / (rates_.flops_per_ms * rates_.fused_attention);
    const double by_bytes = moved / rates_.bytes_per_ms;
    OpTime time{.forward_ms = std::max(by_flops, by_bytes) + rates_.kernel_ms,
                .input_gradient_ms = std::max(kFusedBackwardFactor * by_flops, 2 * by_bytes) + 2 * rates_.kernel_ms,
                .forward_kernels = 1,
                .input_gradient_kernels = 2};
    add_ring(a, time);
    return time;
  }

  /// What a ring's steps add to attention besides its pairs: a call for every sequence, whose result joins those before
  /// it in fp32; keys packed to be sent; gradients of others' keys, summed in fp32 and sent back.
  void add_ring(const Attention& a, OpTime& time) const {
    const double steps = ring_steps(a);
    if (steps == 0) return;
    double sequences = 0;
    for (const Segment& segment : segments_) sequences += segment.count;
    const double calls = std::max(1.0, sequences);
    const double forward_kernels = steps * (kRingForwardKernels * calls + kSendKernels);
    const double backward_kernels = steps * (kRingBackwardKernels * calls + 2 * kSendKernels);
    const double elements = steps * rows_ * block_share(a) * as_double(a.head_dim) / as_double(setting_.tp);
    const double queries = elements * as_double(a.heads), keys = elements * as_double(2 * a.kv_heads);
    time.forward_ms += forward_kernels * rates_.kernel_ms +
                       (queries * (2 * kFp32Bytes + bytes_) + keys * 2 * bytes_) / rates_.bytes_per_ms;
    time.input_gradient_ms += backward_kernels * rates_.kernel_ms +
                              (queries * 3 * kFp32Bytes + keys * (5 * kFp32Bytes + 4 * bytes_)) / rates_.bytes_per_ms;
    time.forward_kernels += forward_kernels;
    time.input_gradient_kernels += backward_kernels;
  }

  /// Two batched products, which compute masked scores too, around kernels that read and write every score.
  OpTime unfused(const Attention& a, double heads) const {
    Attention all = a;
    if (all.mask != Mask::kWindowed) all.mask = Mask::kFull;
    const double pairs = num_attention_pairs(all, segments_) / as_double(setting_.cp);
    const double tokens = tokens_ / as_double(setting_.cp);
    const double length = tokens > 0 ? pairs / tokens : 0;  // keys that a query sees
    const double copies = length > 0 ? heads * tokens / length : 0;
    const double head_dim = as_double(a.head_dim);
    const double scores = copies * product_ms(rates_, setting_.precision, length, head_dim, length);
    const double values = copies * product_ms(rates_, setting_.precision, length, length, head_dim);
    const double products = (scores + values) / rates_.attention_products;
    const double dropout_bytes = a.dropout > 0 ? kDropoutPasses * bytes_ + kMaskBytes : 0;
    const double score_bytes = heads * pairs;
    const double kernels = a.dropout > 0 ? 4 : 3;
    return {.forward_ms = products + score_bytes * (kSoftmaxPasses * bytes_ + dropout_bytes) / rates_.bytes_per_ms +
                          kernels * rates_.kernel_ms,
            .input_gradient_ms = 2 * products +
                                 score_bytes * (kSoftmaxBackwardPasses * bytes_ + dropout_bytes) / rates_.bytes_per_ms +
                                 (kernels + 2) * rates_.kernel_ms,
            .forward_kernels = kernels,
            .input_gradient_kernels = kernels + 2};
  }

  const Op& op_;
  const BlockSetting& setting_;
  const DeviceRates& rates_;
  const Segments& segments_;
  double tokens_;
  double rows_;
  double bytes_;
};

}  // namespace

DeviceRates rates_of(const Cluster& cluster, Precision precision) {
  const Efficiency& share = cluster.efficiency;
  return {
      .flops_per_ms = cluster.device.matrix_tflops.at(precision) * cluster.device.power_share() * share.matrix * 1e9,
      .bytes_per_ms = cluster.device.memory_bandwidth_gb_per_s * share.memory * 1e6,
      .kernel_ms = share.kernel_us * 1e-3,
      .passes = share.passes_per_operator,
      .half_size = share.matrix_half_size,
      .attention_products = share.attention_products,
      .fused_attention = share.fused_attention};
}

double busiest_rank(int64_t num_ranks, double rows) {
  if (num_ranks <= 1 || rows <= 0) return 1;
  const double ranks = as_double(num_ranks);
  return 1 + std::sqrt(2 * std::log(ranks) * (1 - 1 / ranks) / rows);
}

double product_ms(const DeviceRates& rates, Precision precision, double rows, double in, double out) {
  if (rows <= 0) return 0;
  const double by_flops =
      2 * rows * in * out / rates.flops_per_ms * (1 + rates.half_size * (1 / rows + 1 / in + 1 / out));
  const double by_bytes = num_bytes(precision) * (rows * in + in * out + rows * out) / rates.bytes_per_ms;
  return std::max(by_flops, by_bytes);
}

OpTime analytic_time(const Op& op, const BlockSetting& setting, const DeviceRates& rates, const Segments& segments,
                     double tokens) {
  return std::visit(OpPricer(op, setting, rates, segments, tokens), op.shape);
}

}  // namespace weft
