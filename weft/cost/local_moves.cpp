#include "weft/cost/local_moves.h"

#include "weft/base/as_double.h"
#include "weft/program/value_layout.h"

namespace weft {

bool lies_outermost(const Layout& layout, size_t dim) {
  const std::vector<int64_t> shape = layout.local_shape(0);
  for (size_t before = 0; before < dim; ++before) {
    if (shape[before] > 1) return false;
  }
  return true;
}

int64_t moved_elements(const Step& step) {
  const int64_t before = step.before.num_local_elements(0), after = step.after.num_local_elements(0);
  switch (step.kind) {
    case StepKind::kSlice:
      return 2 * after;
    case StepKind::kZeroPad:
      return before == after ? after : after + 2 * before;
    case StepKind::kAllGather:
      return lies_outermost(step.after, step.dim) ? 0 : 2 * after;
    case StepKind::kReduceScatter:
      return lies_outermost(step.before, step.dim) ? 0 : 2 * before;
    case StepKind::kAllToAll:
      return (lies_outermost(step.before, step.to_dim) ? 0 : 2 * before) +
             (lies_outermost(step.after, step.dim) ? 0 : 2 * after);
    case StepKind::kIdentity:
    case StepKind::kAllReduce:
      break;
  }
  return 0;
}

LocalMoves local_moves(const ProgramMeaning& meaning, const RunLengths& lengths, int64_t element_bytes) {
  const ProgramFlow& flow = meaning.flow();
  LocalMoves moves;
  for (const Arrival& arrival : flow.arrivals) {
    const auto layout_of = [&](const std::vector<AxisState>& states) {
      return *value_layout(*flow.program, lengths, flow.grid, arrival.value, states);
    };
    const auto add = [&](const std::vector<Step>& steps, double& bytes) {
      for (const Step& step : steps) bytes += as_double(moved_elements(step) * element_bytes);
    };
    add(arrival.form.forward(layout_of), moves.forward_bytes);
    if (arrival.needs_gradient)
      add(arrival.form.adjoint(layout_of),
          arrival.is_weight ? moves.backward_weight_bytes : moves.backward_input_bytes);
  }
  return moves;
}

}  // namespace weft
