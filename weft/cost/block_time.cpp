#include "weft/cost/block_time.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/cost/context_time.h"
#include "weft/cost/local_shape.h"
#include "weft/cost/program_memory.h"
#include "weft/cost/program_time.h"
#include "weft/meaning/block_exchanges.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

BlockSharing sharing_of(const BlockSetting& setting) {
  return {.tp = setting.tp,
          .ulysses = setting.cp_ulysses,
          .ring = setting.cp / setting.cp_ulysses,
          .ep = setting.ep,
          .divides_rows = setting.sequence_parallel && setting.tp > 1,
          .experts_over_tp = setting.experts_over_tp,
          .balances_experts = setting.balances_experts};
}

/// An llm's entry.
bool has_table(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), is_divided_table);
}

/// The forward's exchanges.
std::vector<BlockExchange> exchanges_of(const Module& module, const Block& block, const BlockSharing& sharing,
                                        bool places_whole_rows) {
  if (has_table(block) && module.kind == ModuleKind::kLlm) return entry_exchanges(module, sharing, places_whole_rows);
  return forward_exchanges(module, block, sharing);
}

/// Prices a block's exchanges.
class Communication {
 public:
  Communication(const Module& module, const Block& block, const BlockSetting& setting, const Cluster& cluster,
                const DeviceRates& rates, double tokens)
      : module_(module),
        block_(block),
        setting_(setting),
        overlap_(cluster.efficiency.overlap),
        tokens_(tokens / as_double(setting.cp)),
        bytes_(num_bytes(setting.precision)),
        context_(context_sharing(setting), rates, overlap_, tokens_, bytes_) {}

  /// By operator of the block: what hides communication.
  void add(const std::vector<OpTime>& times, BlockTime& total) const {
    const BlockSharing sharing = sharing_of(setting_);
    if (sharing.tp == 1 && sharing.ulysses == 1 && sharing.ring == 1 && sharing.ep == 1) return;
    add(exchanges_of(module_, block_, sharing, setting_.places_whole_rows), times, total);
  }

  /// An encoder's, behind its exit.
  void add_output(BlockTime& total) const {
    add(output_exchanges(module_, sharing_of(setting_),
                         {.is_in_pipeline = setting_.gives_media_rows, .divides_parts = setting_.divides_parts}),
        std::vector<OpTime>(block_.ops.size()), total);
  }

 private:
  void add(const std::vector<BlockExchange>& forward, const std::vector<OpTime>& times, BlockTime& total) const {
    for (const BlockExchange& each : forward) add(each, times[each.op], total);
    std::vector<OpGradients> all(block_.ops.size() + 1, {true, true, true, true});
    for (size_t i = 0; i < block_.ops.size(); ++i)
      all[i].of_weight = all[i].of_bias = has_gradient(block_, block_.ops[i]);
    for (const BlockExchange& each : backward_exchanges(forward, all, BlockRecompute::kKeep))
      add(each, times[each.op], total);
    // What recomputing attention repeats, and the kept backward does not have.
    for (const BlockExchange& each : forward) {
      if (each.kind == ExchangeKind::kKeys) total.attention.cp_ms += context_ms(each, times[each.op]);
    }
  }

  void add(const BlockExchange& each, const OpTime& time, BlockTime& total) const {
    PassTime& pass = each.pass == BlockPass::kForward         ? total.forward
                     : each.pass == BlockPass::kBackwardInput ? total.backward_input
                                                              : total.backward_weight;
    switch (each.kind) {
      case ExchangeKind::kRows:
        return add_rows(each, time, pass, total);
      case ExchangeKind::kLoss:
        // Largest logit, sum and target of every row.
        pass.tp_ms += 3 * all_reduce_ms(setting_.tp_link, block_.ops[each.op].rows.value() * tokens_ * kFp32Bytes);
        return;
      case ExchangeKind::kHeads:
      case ExchangeKind::kKeys:
        pass.cp_ms += context_ms(each, time);
        return;
      case ExchangeKind::kBalance:
        pass.ep_ms += all_reduce_ms(setting_.balance_link, (num_experts(each) + 1) * kNumberBytes);
        return;
      case ExchangeKind::kExpertCounts:
        pass.ep_ms += all_to_all_ms(setting_.ep_link, num_experts(each) * kNumberBytes);
        return;
      case ExchangeKind::kExpertRows:
        pass.ep_ms += expert_rows_ms(block_.ops[each.op]);
        return;
      case ExchangeKind::kMediaRows:
        pass.cp_ms +=
            all_to_all_ms(setting_.cp_link, module_.output_rows.value() * tokens_ * as_double(each.columns) * bytes_);
        return;
    }
  }

  /// Of the router that exchanges their counts.
  double num_experts(const BlockExchange& each) const {
    return as_double(std::get<Matmul>(block_.ops[each.op].shape).out);
  }

  /// What is left of communication that runs beside compute.
  double exposed(double communication_ms, double compute_ms) const {
    return std::max(0.0, communication_ms - overlap_ * compute_ms);
  }

  void add_rows(const BlockExchange& each, const OpTime& time, PassTime& pass, BlockTime& total) const {
    const auto operation = operation_of(each.change, setting_.row_share() > 1, each.goes_back);
    if (!operation) return;
    const double rows = each.has_outputs ? module_.output_rows.value() * tokens_ : tokens_;
    const double size = rows * as_double(each.columns) * bytes_;
    const double ms = *operation == OperationKind::kAllGather       ? all_gather_ms(setting_.tp_link, size)
                      : *operation == OperationKind::kReduceScatter ? reduce_scatter_ms(setting_.tp_link, size)
                                                                    : all_reduce_ms(setting_.tp_link, size);
    double left_ms = ms;
    if (setting_.overlap_tp && each.change == RowChange::kEnter) {
      // One half of a backward hides what the other waits for.
      if (each.pass == BlockPass::kBackwardInput) {
        left_ms = exposed(ms, time.weight_gradient_ms);
        total.hidden_input_tp_ms += ms - left_ms;
      } else if (each.pass == BlockPass::kBackwardWeight) {
        left_ms = exposed(ms, time.input_gradient_ms);
        total.hidden_weight_tp_ms += ms - left_ms;
      }
    }
    pass.tp_ms += left_ms;
  }

  double context_ms(const BlockExchange& each, const OpTime& time) const {
    return context_.exchange_ms(each, std::get<Attention>(block_.ops[each.op].shape), setting_.share(), time);
  }

  /// Tokens go to their experts' ranks before the first product and come back after the last. Tensor-parallel ranks
  /// have whole rows there, and each brings all of them to its part of the experts; or experts are spread over them,
  /// too, and each brings its own rows.
  double expert_rows_ms(const Op& op) const {
    const double mean_rows = op.rows.value() * tokens_ / as_double(row_share(op, setting_));
    const double rows = mean_rows * busiest_rank(setting_.ep, mean_rows);
    return all_to_all_ms(setting_.ep_link, rows * as_double(module_.width) * bytes_);
  }

  static constexpr double kNumberBytes = 8;

  const Module& module_;
  const Block& block_;
  const BlockSetting& setting_;
  double overlap_;
  double tokens_;
  double bytes_;
  ContextTime context_;
};

/// What formulas say of a block's compute.
struct BlockCompute {
  std::vector<OpTime> ops;  ///< by operator
  OpTime sum;
  double attention_ms = 0;  ///< of the forward: what selective recomputation repeats

  /// Times of the operators in each pass by a factor. Sums stay.
  void scale(double forward, double input_gradient, double weight_gradient) {
    for (OpTime& op : ops) {
      op.forward_ms *= forward;
      op.input_gradient_ms *= input_gradient;
      op.weight_gradient_ms *= weight_gradient;
    }
  }
};

/// Of what no program computes. Where a block has adapters, these alone have gradients of weights.
BlockCompute compute_of(const Block& block, const BlockSetting& setting, const DeviceRates& rates,
                        const Segments& segments, double tokens, double slowdown) {
  BlockCompute compute;
  compute.ops.reserve(block.ops.size());
  compute.ops.resize(num_in_program(block));
  for (size_t i = num_in_program(block); i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    OpTime& time = compute.ops.emplace_back(analytic_time(op, setting, rates, segments, tokens));
    if (!has_gradient(block, op)) time.weight_gradient_ms = time.weight_gradient_kernels = 0;
    time.forward_ms *= slowdown;
    time.input_gradient_ms *= slowdown;
    time.weight_gradient_ms *= slowdown;
    compute.sum += time;
    if (std::holds_alternative<Attention>(op.shape)) compute.attention_ms += time.forward_ms;
    if (std::holds_alternative<CrossEntropy>(op.shape))
      compute.attention_ms += time.forward_ms + compute.ops[compute.ops.size() - 2].forward_ms;
  }
  return compute;
}

/// The host starts kernels one by one; where the device is done sooner, the host decides.
double with_host_floor(double ms, double kernels, const Efficiency& efficiency) {
  return std::max(ms, kernels * efficiency.host_us_per_kernel * 1e-3);
}

/// Steps on many nodes wait for the slowest.
double slowdown_of(const Cluster& cluster) {
  return 1 + cluster.efficiency.slowdown_per_doubling * std::log2(as_double(cluster.nodes));
}

}  // namespace

BlockTime output_time(const Cluster& cluster, const Module& encoder, const BlockSetting& setting,
                      const Segments& segments) {
  BlockTime total;
  if (const double tokens = num_tokens(segments); tokens > 0) {
    Communication(encoder, encoder.exit, setting, cluster, rates_of(cluster, setting.precision), tokens)
        .add_output(total);
  }
  return total;
}

BlockTime AnalyticTimes::time_of(const Module& module, const Block& block, const BlockSetting& setting,
                                 const Segments& segments) const {
  BlockTime total;
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return total;
  OpTime sum;
  if (block.program) {
    const auto meaning = meanings_->of(block.program, ranks_of(setting));
    ProgramTime program = program_time(*meaning, setting, *cluster_, segments, measured_);
    total = program.time;
    sum = program.compute;
    const double slowdown = slowdown_of(*cluster_);
    for (PassTime* pass : {&total.forward, &total.backward_input, &total.backward_weight}) pass->compute_ms *= slowdown;
    program.scale_ops(slowdown, slowdown, slowdown);
    add_communication(*meaning, setting, *cluster_, segments, program, total);
  }
  if (num_in_program(block) < block.ops.size()) {
    const DeviceRates rates = rates_of(*cluster_, setting.precision);
    const BlockCompute compute = compute_of(block, setting, rates, segments, tokens, slowdown_of(*cluster_));
    sum += compute.sum;
    total.forward.compute_ms += compute.sum.forward_ms;
    total.backward_input.compute_ms += compute.sum.input_gradient_ms;
    total.backward_weight.compute_ms += compute.sum.weight_gradient_ms;
    total.attention.compute_ms = compute.attention_ms;
    Communication(module, block, setting, *cluster_, rates, tokens).add(compute.ops, total);
  }
  const auto apply_host_floor = [&](PassTime& pass, double kernels) {
    const double ms = pass.total_ms();
    pass.compute_ms += with_host_floor(ms, kernels, cluster_->efficiency) - ms;
  };
  apply_host_floor(total.forward, sum.forward_kernels);
  apply_host_floor(total.backward_input, sum.input_gradient_kernels);
  apply_host_floor(total.backward_weight, sum.weight_gradient_kernels);
  return total;
}

BlockTime AnalyticTimes::time_of(const Module& module, const Block& block, const BlockSetting& setting,
                                 const Segments& segments, const ComputeRatios& ratios) const {
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return {};
  const DeviceRates rates = rates_of(*cluster_, setting.precision);
  const double slowdown = slowdown_of(*cluster_);
  const auto meaning = block.program ? meanings_->of(block.program, ranks_of(setting)) : nullptr;
  ProgramTime program;
  if (meaning) program = program_time(*meaning, setting, *cluster_, segments);
  BlockCompute rest = compute_of(block, setting, rates, segments, tokens, slowdown);
  BlockTime total = program.time;
  OpTime kernels = program.compute;
  kernels += rest.sum;
  total.attention.compute_ms = ratios.attention * rest.attention_ms;
  // What hides communication is what was measured, so every operator gets its part of it.
  const auto scale = [&](double& pass_ms, double rest_ms, double num_kernels, double ratio) {
    const double formula_ms = slowdown * pass_ms + rest_ms;
    pass_ms = ratio * with_host_floor(formula_ms, num_kernels, cluster_->efficiency);
    return formula_ms > 0 ? pass_ms / formula_ms : 0;
  };
  const double forward = scale(total.forward.compute_ms, rest.sum.forward_ms, kernels.forward_kernels, ratios.forward);
  const double input = scale(total.backward_input.compute_ms, rest.sum.input_gradient_ms,
                             kernels.input_gradient_kernels, ratios.backward_input);
  const double weight = scale(total.backward_weight.compute_ms, rest.sum.weight_gradient_ms,
                              kernels.weight_gradient_kernels, ratios.backward_weight);
  if (meaning) {
    program.scale_ops(slowdown * forward, slowdown * input, slowdown * weight);
    add_communication(*meaning, setting, *cluster_, segments, program, total);
  }
  if (num_in_program(block) == block.ops.size()) return total;
  rest.scale(forward, input, weight);
  Communication(module, block, setting, *cluster_, rates, tokens).add(rest.ops, total);
  return total;
}

}  // namespace weft
