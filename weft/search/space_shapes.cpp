#include "weft/search/space_shapes.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "weft/meaning/busy_ranks.h"
#include "weft/meaning/macro_batch.h"
#include "weft/search/frame_queue.h"
#include "weft/search/open_frame.h"
#include "weft/search/plan_search.h"
#include "weft/search/precision.h"
#include "weft/simulate/asked_shapes.h"
#include "weft/simulate/drawn_samples.h"

namespace weft {
namespace {

/// Prices some microbatches of a drawn batch besides the mean one: loads that differ.
void ask_for_drawn(const Plan& plan, const std::vector<SampleLoad>& samples, const CostModel& costs) {
  constexpr size_t kMicrobatches = 6;
  for (const ModulePlan& module : plan.modules) {
    const auto at_once = static_cast<size_t>(samples_at_once(plan, module));
    for (size_t turn = 0; turn < kMicrobatches && (turn + 1) * at_once <= samples.size(); ++turn) {
      Segments segments;
      for (size_t i = turn * at_once; i < (turn + 1) * at_once; ++i) {
        const Segments& own = samples[i].of(module.kind);
        segments.insert(segments.end(), own.begin(), own.end());
      }
      costs.module_costs(plan, module, segments);
    }
  }
}

}  // namespace

Result<std::vector<BlockShape>> wanted_shapes(const Model& model, const Cluster& cluster, const Workload& workload,
                                              const PlanSpace& given, size_t most) {
  constexpr size_t kMostSettings = 24;
  constexpr size_t kMostCombinations = 2;
  constexpr double kMuchSlower = 3;
  WEFT_TRY(const PlanSpace space, fitted(given, model));
  Workload load = workload;
  if (space.frozen) load.frozen = *space.frozen;
  const Plan problem = plan_without_settings(model, cluster, std::move(load));
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(problem));
  Workbench bench(space, problem, std::move(simulator));
  FrameBounds bounds(bench);
  std::vector<Frame> frames = list_frames(bench.plan(), bench.space());
  for (Frame& frame : frames) frame.bound_ms = bounds.work_ms(frame.degrees);
  FrameQueue queue(std::move(frames));

  AskedShapes asked(problem.model, busy_ranks(problem));
  WEFT_TRY(PlanSimulator recorder,
           PlanSimulator::create(problem, std::make_unique<RecordingTimes>(problem.cluster, asked)));
  DrawnSamples drawn(problem);
  const bool draws = has_distributions(problem.workload) &&
                     problem.workload.global_batch_samples <= kMostDrawnSamples &&
                     expected_pieces(problem.model, problem.workload, 1) <= kMostDrawnPieces;
  double best_ms = kInfinity;
  // What blocks feel of a frame: others divide the same blocks over ranks.
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, bool, int64_t>> seen;
  for (size_t f = 0; f < queue.size() && seen.size() < kMostSettings; ++f) {
    const Frame& closed = queue.least_from(f, kMuchSlower * best_ms, bounds);
    if (closed.bound_ms >= kMuchSlower * best_ms) break;
    best_ms = std::min(best_ms, closed.bound_ms);
    const Candidate& d = closed.degrees;
    if (!seen.insert({d.tp, d.cp, d.cp_ulysses, d.ep, d.sequence_parallel, d.mbs}).second) continue;
    const OpenFrame frame = open_frame(bench, closed.degrees);
    size_t tried = 0;
    for (const Combination& combination : frame.combinations) {
      if (combination.least_ms == kInfinity || tried++ == kMostCombinations) break;
      Candidate c = frame.candidate_of(combination);
      if (!frame.choices.zeros.empty()) frame.choices.zeros.front().apply(c);
      bench.fill(c);
      asked.weigh(static_cast<double>(bench.microbatches(c)) / static_cast<double>(seen.size()));
      recorder.price(bench.plan());
      asked.weigh(1 / static_cast<double>(seen.size()));
      if (draws) ask_for_drawn(bench.plan(), drawn.batch(0), recorder.costs());
    }
  }
  return asked.reduced(most);
}

}  // namespace weft
