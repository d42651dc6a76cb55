#include "weft/meaning/row_changes.h"

#include <gtest/gtest.h>

#include "weft/mesh/transition.h"

namespace weft {
namespace {

std::optional<OperationKind> only_collective(const std::vector<Step>& steps) {
  std::optional<OperationKind> found;
  for (const Step& step : steps) {
    if (!is_collective(step.kind)) continue;
    EXPECT_FALSE(found) << text(steps);
    found = step.kind == StepKind::kAllGather       ? OperationKind::kAllGather
            : step.kind == StepKind::kReduceScatter ? OperationKind::kReduceScatter
            : step.kind == StepKind::kAllReduce     ? OperationKind::kAllReduce
                                                    : OperationKind::kAllToAll;
  }
  return found;
}

// What is priced by name is what the transition between the same layouts runs.
TEST(RowChanges, AreTheCollectivesOfTheirTransitions) {
  const AxisGrid grid = *AxisGrid::create({{"tp", 4}});
  const auto layout = [&](AxisState state) { return *Layout::create(grid, {16, 8}, {state}); };
  for (const bool divides_rows : {false, true}) {
    for (const RowChange change : {RowChange::kEnter, RowChange::kLeave, RowChange::kSum, RowChange::kDivide,
                                   RowChange::kGather, RowChange::kJoin}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(change)) + (divides_rows ? ", divided" : ", whole"));
      const RowStates states = states_of(change, divides_rows);
      const Transition transition = plan_transition(layout(states.from), layout(states.to));
      EXPECT_EQ(operation_of(change, divides_rows, false), only_collective(transition.forward));
      EXPECT_EQ(operation_of(change, divides_rows, true), only_collective(transition.adjoint));
    }
  }
}

}  // namespace
}  // namespace weft
