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

}  // namespace

ProgramTime program_time(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments, const OperatorTimes* measured) {
  const BlockProgram& block = meaning.block();
  const RunLengths lengths = meaning.lengths(samples_of(block, segments));
  const Program sized = sized_program(block, lengths);
  const ShardSetting shared{.cluster = cluster,
                            .links = AxisLinks::of_one({"tp", setting.tp}, setting.tp_link),
                            .precision = setting.precision,
                            .attention = setting.attention,
                            .measured = measured};
  ProgramTime total;
  std::vector<bool> has_inside(sized.operators.size());  // what it communicates itself is in its time
  for (size_t op = 0; op < sized.operators.size(); ++op) {
    const OperatorPrice price = price_operator(sized, sized.operators[op], meaning.flow().choices[op], shared,
                                               block.is_layer() ? &segments : nullptr);
    total.compute += price.time;
    has_inside[op] = price.is_measured;
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
  for (const ProgramExchange& each : meaning.exchanges(lengths, static_cast<int64_t>(num_bytes(setting.precision)))) {
    if (each.inside_of && has_inside[*each.inside_of]) continue;
    PassTime& pass = each.pass == BlockPass::kForward         ? total.time.forward
                     : each.pass == BlockPass::kBackwardInput ? total.time.backward_input
                                                              : total.time.backward_weight;
    pass.tp_ms += each.step ? shared.links.step_ms(each.step->kind, 1, busiest_bytes(each))
                            : all_reduce_ms(setting.tp_link, as_double(each.summed * each.element_bytes));
  }
  return total;
}

}  // namespace weft
