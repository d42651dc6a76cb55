// How long steps wait for their samples: weft_data_wait PLAN DATA MODEL_FOLDER THREADS STEP_MS STEPS prepares batches
// of conversations as training does, beside steps that do nothing but last STEP_MS. The plan is of one rank; its model
// only has to take in what the folder's files say. bench/data_wait.py makes the files and runs it.
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/comm/run_ranks.h"
#include "weft/data/conversations/data_settings.h"
#include "weft/engine/batch_maker.h"
#include "weft/engine/run_samples.h"
#include "weft/plan/plan_json.h"

namespace {

using namespace weft;

template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

void measure(World& world, const Plan& plan, const DataSettings& settings, char** argv) {
  const int64_t threads = std::atoll(argv[4]), steps = std::atoll(argv[6]);
  const double step_ms = std::atof(argv[5]);
  const std::unique_ptr<TrainingRank> rank = must(TrainingRank::create(world, plan, {.seed = 1}));
  SharedBatches batches(threads);
  const TrainConfig config{.seed = 1, .data = TrainData{.settings = settings, .model = argv[3]}};
  const RunSamples opened = must(open_run_samples(plan, config, batches.workers()));
  if (!opened.packing.empty()) fmt::print("{}\n", opened.packing);
  const SampleSource& samples = *opened.trained;
  const SampleCosts costs;
  const BatchMaker maker{.plan = plan, .rank = *rank, .costs = costs, .workers = batches.workers()};
  const auto batch_of = [&](int64_t step) {
    return batches.get({{ModuleKind::kLlm, 0}}, {.step = step}, [&maker, &samples, &plan, step] {
      return maker.make(samples, step * plan.workload.global_batch_samples);
    });
  };
  double alone_ms = now_ms();
  LocalBatch batch = batch_of(0).get();
  alone_ms = now_ms() - alone_ms;
  double waited_ms = 0, most_ms = 0, tokens = 0, patches = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    const std::shared_future<LocalBatch> next = batch_of(step);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(step_ms));
    const double start = now_ms();
    batch = next.get();
    const double waited = now_ms() - start;
    WEFT_CHECK(!batch.error && batch.skipped.empty(), "step {}: samples that cannot be used", step);
    waited_ms += waited;
    most_ms = std::max(most_ms, waited);
    tokens = batch.num_tokens;
    patches = 0;
    for (const Inputs& inputs : batch.batch.microbatches)
      patches += inputs.vision ? static_cast<double>(inputs.vision->pixels.size(0)) : 0;
  }
  fmt::print(
      "{} threads: a batch of {} tokens and {} patches takes {:.1f} ms by itself; {} steps of {} ms waited {:.2f} ms "
      "each, {:.2f} ms at most: {:.3f} % of a step\n",
      threads, tokens, patches, alone_ms, steps, step_ms, waited_ms / static_cast<double>(steps), most_ms,
      100 * waited_ms / static_cast<double>(steps) / step_ms);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: weft_data_wait PLAN DATA MODEL_FOLDER THREADS STEP_MS STEPS\n");
    return 2;
  }
  const Plan plan = must(read_plan_file(argv[1]));
  const DataSettings settings = must(read_data_settings_file(argv[2]));
  const auto error = run_ranks({.size = 1}, [&](World& world) { measure(world, plan, settings, argv); });
  WEFT_CHECK(!error, "{}", error->message());
  return 0;
}
