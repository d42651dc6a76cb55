#include "weft/simulate/wanted_shapes.h"

#include <limits>

#include "weft/meaning/busy_ranks.h"
#include "weft/simulate/asked_shapes.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

Result<std::vector<BlockShape>> wanted_shapes(const Plan& plan) {
  constexpr int64_t kBatches = 3;
  AskedShapes asked(plan.model, busy_ranks(plan));
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, std::make_unique<RecordingTimes>(plan.cluster, asked)));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  // The mean batch is priced once for all microbatches.
  asked.weigh(static_cast<double>(plan.schedule.microbatches * kBatches));
  simulator.price(plan);
  asked.weigh(1);
  if (has_distributions(plan.workload) && expected_pieces(plan.model, plan.workload, kBatches) <= kMostDrawnPieces) {
    DrawnSamples samples(plan);
    const SampleWork work(plan, simulator.costs());
    for (int64_t batch = 0; batch < kBatches; ++batch) simulator.run_drawn(plan, schedule, work, samples.batch(batch));
  }
  std::vector<BlockShape> shapes;
  for (const BlockShape& shape : asked.reduced(std::numeric_limits<size_t>::max())) {
    shapes.push_back(shape);
    // A strategy's own measurement counts beside one of the layer without it (MeasuredTimes).
    if (!shape.strategy.empty()) shapes.emplace_back(shape).strategy.clear();
  }
  return shapes;
}

}  // namespace weft
