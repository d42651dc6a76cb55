#include "weft/cost/program_time.h"

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
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

ProgramTime program_time(const BlockProgram& block, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments) {
  const ProgramMeaning meaning(block, ranks_of(setting));
  const RunLengths lengths = meaning.lengths(samples_of(block, segments));
  Program sized = block.program;
  for (size_t dim = 0; dim < sized.dims.size(); ++dim) {
    sized.dims[dim].length = lengths[dim].length;
    sized.dims[dim].unit = lengths[dim].unit;
  }
  const ShardSetting shared{.cluster = cluster,
                            .links = AxisLinks::of_one({"tp", setting.tp}, setting.tp_link),
                            .precision = setting.precision,
                            .attention = setting.attention};
  ProgramTime total;
  for (size_t op = 0; op < sized.operators.size(); ++op)
    total.compute += price_operator(sized, sized.operators[op], meaning.flow().choices[op], shared,
                                    block.is_layer() ? &segments : nullptr)
                         .time;
  total.time.forward.compute_ms = total.compute.forward_ms;
  total.time.backward_input.compute_ms = total.compute.input_gradient_ms;
  total.time.backward_weight.compute_ms = total.compute.weight_gradient_ms;
  for (const ProgramExchange& each : meaning.exchanges(lengths, static_cast<int64_t>(num_bytes(setting.precision)))) {
    PassTime& pass = each.pass == BlockPass::kForward         ? total.time.forward
                     : each.pass == BlockPass::kBackwardInput ? total.time.backward_input
                                                              : total.time.backward_weight;
    pass.tp_ms += each.step ? shared.links.step_ms(each.step->kind, 1, busiest_bytes(each))
                            : all_reduce_ms(setting.tp_link, as_double(each.summed * each.element_bytes));
  }
  return total;
}

}  // namespace weft
