#include "weft/cost/program_time.h"

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/cost/local_moves.h"
#include "weft/cost/operator_prices.h"
#include "weft/cost/program_memory.h"

namespace weft {
namespace {

/// What a rank has of the tensor where more of it is held.
double busiest_bytes(const ProgramExchange& exchange) {
  const Step& step = *exchange.step;
  const Layout& more = step.kind == StepKind::kAllGather ? step.after : step.before;
  return as_double(more.num_local_elements(0) * exchange.element_bytes);
}

/// The first rank never has fewer heads than another.
Attention busiest_attention(const ContextExchange& exchange) {
  Attention attention = exchange.attention;
  attention.heads = exchange.heads.front().heads;
  attention.kv_heads = exchange.heads.front().kv_heads;
  return attention;
}

/// Of a rank with rows of the microbatch.
ShardSetting shard_setting(const BlockSetting& setting, const Cluster& cluster, const OperatorTimes* measured) {
  return {.cluster = cluster,
          .links = AxisLinks::of_one({"tp", setting.tp}, setting.tp_link),
          .precision = setting.precision,
          .attention = setting.attention,
          .measured = measured,
          .context = context_sharing(setting)};
}

}  // namespace

void ProgramTime::scale_ops(double forward, double input_gradient, double weight_gradient) {
  for (OpTime& op : ops) {
    op.forward_ms *= forward;
    op.input_gradient_ms *= input_gradient;
    op.weight_gradient_ms *= weight_gradient;
  }
}

ProgramTime program_time(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments, const OperatorTimes* measured) {
  const BlockProgram& block = meaning.block();
  const RunLengths lengths = meaning.lengths(samples_of(block, segments, setting.cp));
  const Program sized = sized_program(block, lengths);
  const ShardSetting shared = shard_setting(setting, cluster, measured);
  ProgramTime total;
  for (size_t op = 0; op < sized.operators.size(); ++op) {
    const OperatorPrice price = price_operator(sized, sized.operators[op], meaning.flow().choices[op], shared,
                                               block.is_layer() ? &segments : nullptr);
    total.compute += price.time;
    total.ops.push_back(price.time);
    total.has_sent.push_back(price.is_measured);
    total.num_measured += price.is_measured ? 1 : 0;
    total.num_scaled += price.is_scaled ? 1 : 0;
  }
  total.time.forward.compute_ms = total.compute.forward_ms;
  total.time.backward_input.compute_ms = total.compute.input_gradient_ms;
  total.time.backward_weight.compute_ms = total.compute.weight_gradient_ms;
  const LocalMoves moves = local_moves(meaning, lengths, static_cast<int64_t>(num_bytes(setting.precision)));
  const double bytes_per_ms = shared.rates().bytes_per_ms;
  total.time.forward.compute_ms += moves.forward_bytes / bytes_per_ms;
  total.time.backward_input.compute_ms += moves.backward_input_bytes / bytes_per_ms;
  total.time.backward_weight.compute_ms += moves.backward_weight_bytes / bytes_per_ms;
  return total;
}

void add_communication(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                       const Segments& segments, const ProgramTime& program, BlockTime& total) {
  const RunLengths lengths = meaning.lengths(samples_of(meaning.block(), segments, setting.cp));
  const ShardSetting shared = shard_setting(setting, cluster, nullptr);
  const ContextTime context(shared.context, shared.rates(), cluster.efficiency.overlap,
                            num_tokens(segments) / as_double(setting.cp), num_bytes(setting.precision));
  for (const ProgramExchange& each : meaning.exchanges(lengths, static_cast<int64_t>(num_bytes(setting.precision)))) {
    if (each.inside_of && program.has_sent[*each.inside_of]) continue;
    PassTime& pass = each.pass == BlockPass::kForward         ? total.forward
                     : each.pass == BlockPass::kBackwardInput ? total.backward_input
                                                              : total.backward_weight;
    if (each.of_rows) {
      pass.cp_ms += context.exchange_ms(each.of_rows->exchange, busiest_attention(*each.of_rows), {},
                                        program.ops[*each.inside_of]);
    } else {
      pass.tp_ms += each.step ? shared.links.step_ms(each.step->kind, 1, busiest_bytes(each))
                              : all_reduce_ms(setting.tp_link, as_double(each.summed * each.element_bytes));
    }
  }
}

}  // namespace weft
