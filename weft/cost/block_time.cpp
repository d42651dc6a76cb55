#include "weft/cost/block_time.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/cost/local_shape.h"
#include "weft/meaning/row_changes.h"

namespace weft {
namespace {

/// The communication around one operator.
class Communication {
 public:
  Communication(const BlockSetting& setting, const Cluster& cluster, const DeviceRates& rates, double tokens)
      : setting_(setting),
        rates_(rates),
        overlap_(cluster.efficiency.overlap),
        tokens_(tokens / as_double(setting.cp)),
        bytes_(num_bytes(setting.precision)) {}

  void add(const Op& op, const OpTime& time, BlockTime& block) const {
    const bool is_spread_over_tp = has_whole_experts(op, setting_.experts_over_tp);
    if (setting_.tp > 1 && !is_spread_over_tp) add_tensor_parallel(op, time, block);
    if (const auto* attention = std::get_if<Attention>(&op.shape); attention != nullptr && setting_.cp > 1)
      add_context_parallel(*attention, time, block);
    if (const auto* matmul = std::get_if<Matmul>(&op.shape); matmul != nullptr && matmul->copies > 1 && setting_.ep > 1)
      add_expert_parallel(op, *matmul, block);
  }

 private:
  /// What is left of communication that runs beside compute.
  double exposed(double communication_ms, double compute_ms) const {
    return std::max(0.0, communication_ms - overlap_ * compute_ms);
  }

  /// A column split reads whole rows and has their gradient summed; a row split sums its output. With sequence
  /// parallelism the rows lie divided between the regions.
  void add_tensor_parallel(const Op& op, const OpTime& time, BlockTime& block) const {
    const double rows = rows_around(op).value() * tokens_;
    const bool divides_rows = setting_.sequence_parallel;
    if (const auto* table = std::get_if<Lookup>(&op.shape); table != nullptr && op.split == TensorSplit::kColumn) {
      const double size = rows * as_double(table->width) * bytes_;
      block.forward.tp_ms +=
          divides_rows ? reduce_scatter_ms(setting_.tp_link, size) : all_reduce_ms(setting_.tp_link, size);
      if (divides_rows) block.backward_weight.tp_ms += all_gather_ms(setting_.tp_link, size);
      return;
    }
    if (std::holds_alternative<CrossEntropy>(op.shape)) {
      // Largest logit, sum and target of every row.
      block.forward.tp_ms += 3 * all_reduce_ms(setting_.tp_link, rows * kFp32Bytes);
      return;
    }
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    if (matmul == nullptr) return;
    if (op.split == TensorSplit::kColumn) {
      const double size = rows * as_double(matmul->in) * bytes_;
      const double back_ms =
          divides_rows ? reduce_scatter_ms(setting_.tp_link, size) : all_reduce_ms(setting_.tp_link, size);
      const double left_ms = setting_.overlap_tp ? exposed(back_ms, time.weight_gradient_ms) : back_ms;
      block.backward_input.tp_ms += left_ms;
      block.hidden_input_tp_ms += back_ms - left_ms;
      if (divides_rows) {
        const double gather_ms = all_gather_ms(setting_.tp_link, size);
        block.forward.tp_ms += gather_ms;
        if (!enters_alone(op)) return;
        // The weights' gradient needs the whole rows again.
        const double gather_left_ms = setting_.overlap_tp ? exposed(gather_ms, time.input_gradient_ms) : gather_ms;
        block.backward_weight.tp_ms += gather_left_ms;
        block.hidden_weight_tp_ms += gather_ms - gather_left_ms;
      }
    } else if (op.split == TensorSplit::kRow) {
      const double size = rows * as_double(matmul->out) * bytes_;
      block.forward.tp_ms +=
          divides_rows ? reduce_scatter_ms(setting_.tp_link, size) : all_reduce_ms(setting_.tp_link, size);
      if (divides_rows) block.backward_input.tp_ms += all_gather_ms(setting_.tp_link, size);
    }
  }

  /// Ulysses exchanges heads for rows before and after attention; in a ring keys and values travel, and going back
  /// their gradients too, behind the attention of the block before.
  void add_context_parallel(const Attention& a, const OpTime& time, BlockTime& block) const {
    const double tp = as_double(setting_.tp);
    const double query = as_double(a.heads * a.head_dim) / tp;
    const double kv = as_double(heads_after_ulysses(a, setting_.share(), setting_.cp_ulysses).keys *
                                setting_.cp_ulysses * a.head_dim);
    PassTime forward;
    const double exchanged = tokens_ * bytes_;
    forward.cp_ms += exchange_ms(exchanged * (query + 2 * kv)) + exchange_ms(exchanged * query);
    const double forward_exchanges_ms = forward.cp_ms;
    const double steps = as_double(setting_.ring_link.num_ranks);
    const double step_ms = ring_step_ms(setting_.ring_link, exchanged * 2 * kv);
    if (steps > 1) forward.cp_ms += (steps - 1) * exposed(step_ms, time.forward_ms / steps);
    block.forward += forward;
    block.attention += forward;
    PassTime backward;
    backward.cp_ms = forward_exchanges_ms;
    if (steps > 1) backward.cp_ms += (steps - 1) * exposed(2 * step_ms, time.input_gradient_ms / steps);
    block.backward_input += backward;
  }

  /// Rows are packed by receiver before they travel, and put in order after.
  double exchange_ms(double bytes) const {
    if (setting_.ulysses_link.num_ranks <= 1) return 0;
    return all_to_all_ms(setting_.ulysses_link, bytes) + 4 * bytes / rates_.bytes_per_ms + 2 * rates_.kernel_ms;
  }

  /// Tokens go to their experts' ranks before the first product and come back after the last. Tensor-parallel ranks
  /// have whole rows there, and each brings all of them to its part of the experts; or experts are spread over them,
  /// too, and each brings its own rows.
  void add_expert_parallel(const Op& op, const Matmul& m, BlockTime& block) const {
    const bool is_first = op.split == TensorSplit::kColumn;
    const double mean_rows = op.rows.value() * tokens_ / as_double(row_share(op, setting_));
    const double rows = mean_rows * busiest_rank(setting_.ep, mean_rows);
    const double ms = all_to_all_ms(setting_.ep_link, rows * as_double(is_first ? m.in : m.out) * bytes_);
    block.forward.ep_ms += ms;
    block.backward_input.ep_ms += ms;
  }

  const BlockSetting& setting_;
  const DeviceRates& rates_;
  double overlap_;
  double tokens_;
  double bytes_;
};

/// The host starts kernels one by one; where the device is done sooner, the host decides.
void apply_host_floor(PassTime& pass, double kernels, double host_ms_per_kernel) {
  pass.compute_ms += std::max(0.0, kernels * host_ms_per_kernel - pass.total_ms());
}

}  // namespace

BlockTime AnalyticTimes::time_of(const Module&, const Block& block, const BlockSetting& setting,
                                 const Segments& segments) const {
  BlockTime total;
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return total;
  const Efficiency& share = cluster_->efficiency;
  const DeviceRates rates = rates_of(*cluster_, setting.precision);
  const double slowdown = 1 + share.slowdown_per_doubling * std::log2(as_double(cluster_->nodes));
  const Communication communication(setting, *cluster_, rates, tokens);
  double forward_kernels = 0, input_kernels = 0, weight_kernels = 0;
  for (const Op& op : block.ops) {
    OpTime time = analytic_time(op, setting, rates, segments, tokens);
    time.forward_ms *= slowdown;
    time.input_gradient_ms *= slowdown;
    time.weight_gradient_ms *= slowdown;
    total.forward.compute_ms += time.forward_ms;
    total.backward_input.compute_ms += time.input_gradient_ms;
    total.backward_weight.compute_ms += time.weight_gradient_ms;
    if (std::holds_alternative<Attention>(op.shape)) total.attention.compute_ms += time.forward_ms;
    forward_kernels += time.forward_kernels;
    input_kernels += time.input_gradient_kernels;
    weight_kernels += time.weight_gradient_kernels;
    communication.add(op, time, total);
  }
  const double host_ms = share.host_us_per_kernel * 1e-3;
  apply_host_floor(total.forward, forward_kernels, host_ms);
  apply_host_floor(total.backward_input, input_kernels, host_ms);
  apply_host_floor(total.backward_weight, weight_kernels, host_ms);
  return total;
}

BlockTime AnalyticTimes::time_of(const Block& block, const BlockSetting& setting, const Segments& segments,
                                 const ComputeRatios& ratios) const {
  BlockTime total;
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return total;
  const Efficiency& share = cluster_->efficiency;
  const DeviceRates rates = rates_of(*cluster_, setting.precision);
  const double slowdown = 1 + share.slowdown_per_doubling * std::log2(as_double(cluster_->nodes));
  std::vector<OpTime> times;
  times.reserve(block.ops.size());
  OpTime sum;
  for (const Op& op : block.ops) {
    const OpTime& time = times.emplace_back(analytic_time(op, setting, rates, segments, tokens));
    sum.forward_ms += time.forward_ms;
    sum.input_gradient_ms += time.input_gradient_ms;
    sum.weight_gradient_ms += time.weight_gradient_ms;
    sum.forward_kernels += time.forward_kernels;
    sum.input_gradient_kernels += time.input_gradient_kernels;
    sum.weight_gradient_kernels += time.weight_gradient_kernels;
    if (std::holds_alternative<Attention>(op.shape))
      total.attention.compute_ms += ratios.attention * slowdown * time.forward_ms;
  }
  // What hides communication is what was measured, so every operator gets its part of it.
  const auto scale = [&](double& pass_ms, double formula_ms, double kernels, double ratio) {
    pass_ms = ratio * std::max(slowdown * formula_ms, kernels * share.host_us_per_kernel * 1e-3);
    return formula_ms > 0 ? pass_ms / formula_ms : 0;
  };
  const double forward_scale = scale(total.forward.compute_ms, sum.forward_ms, sum.forward_kernels, ratios.forward);
  const double input_scale =
      scale(total.backward_input.compute_ms, sum.input_gradient_ms, sum.input_gradient_kernels, ratios.backward_input);
  const double weight_scale = scale(total.backward_weight.compute_ms, sum.weight_gradient_ms,
                                    sum.weight_gradient_kernels, ratios.backward_weight);
  const Communication communication(setting, *cluster_, rates, tokens);
  for (size_t i = 0; i < times.size(); ++i) {
    times[i].forward_ms *= forward_scale;
    times[i].input_gradient_ms *= input_scale;
    times[i].weight_gradient_ms *= weight_scale;
    communication.add(block.ops[i], times[i], total);
  }
  return total;
}

}  // namespace weft
