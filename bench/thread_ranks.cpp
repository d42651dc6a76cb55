// Thread ranks that share few cores: a plan's training step by the clock, against what its ranks compute, shared out
// over the cores (at most 1.15 times that wanted). Steps are those of `weft train`, samples made beside them included.
// What a rank computes is the processor time of the same steps on the same samples when it runs alone: in a fake world,
// where nobody competes for a core and nobody is waited for. Processor time of the real steps tells work that ranks do
// only because of each other from cores that idle.
//
//   weft plan --model tiny-vl --cluster local_cpu --workload tiny_vl --space docs/manual/train_space.yaml --out
//   plan.json build/bench/weft_thread_ranks plan.json docs/manual/train.yaml
#include <algorithm>
#include <ctime>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>

#include "bench/must.h"
#include "tests/support/comm/fake_world.h"
#include "weft/data/synthetic.h"
#include "weft/engine/sample_inputs.h"
#include "weft/engine/trainer.h"
#include "weft/meaning/batch_assignment.h"
#include "weft/pipeline/training_rank.h"
#include "weft/plan/plan_json.h"
#include "weft/tensor/rank_threads.h"

namespace {

using namespace weft;

constexpr int kRounds = 5;      // of both in turn, so that they see the same machine
constexpr int64_t kSteps = 11;  // the first of them warms up

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

double clock_ms(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

int num_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  WEFT_CHECK(sched_getaffinity(0, sizeof(cores), &cores) == 0, "the cores of this process are not known");
  return CPU_COUNT(&cores);
}

/// By step.
struct Steps {
  std::vector<double> clock_ms;
  std::vector<double> processor_ms;
};

Steps train(const Plan& plan, const TrainConfig& config) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("weft_thread_ranks_{}", getpid());
  Steps steps;
  double before = 0;
  const auto on_step = [&](const StepMetrics& metrics, int64_t) {
    const double now = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    steps.clock_ms.push_back(metrics.step_ms);
    steps.processor_ms.push_back(now - before);
    before = now;
  };
  must(Trainer(plan, config).train({.run_folder = folder, .on_step = on_step}));
  std::filesystem::remove_all(folder);
  return steps;
}

/// Processor time of each step on one rank that nobody competes with.
std::vector<double> compute_alone(const Plan& plan, const TrainConfig& config, int64_t index) {
  FakeWorld fake({.rank = index, .size = plan.world_size});
  const auto rank = must(TrainingRank::create(
      fake.world(), plan, {.adamw = config.adamw, .max_gradient_norm = config.max_gradient_norm, .seed = config.seed}));
  const BatchShape& shape = rank->batch_shape();
  WEFT_CHECK(shape.encoders.empty(), "encoders beside the pipeline are not measured here");
  const auto samples = must(SyntheticSamples::create(plan.model, plan.workload,
                                                     sample_form(rank->numbers(), rank->vocabulary()), config.seed));
  const BatchAssignment assignment = assign_in_order(shape);
  std::vector<double> steps;
  for (int64_t step = 0; step < config.steps; ++step) {
    std::vector<Inputs> microbatches;
    int64_t num_targets = 0;
    for (const auto& indices : assignment.llm[static_cast<size_t>(rank->data_parallel_rank())]) {
      std::vector<Sample> own;
      for (const int64_t sample : indices)
        own.push_back(samples.make(step * plan.workload.global_batch_samples + sample));
      microbatches.push_back(must(inputs_of(rank->numbers(), rank->vocabulary(), own)));
      num_targets += shape.llm.data_parallel * microbatches.back().num_targets();
    }
    const double start = clock_ms(CLOCK_THREAD_CPUTIME_ID);
    const StepReport report = rank->step(microbatches, num_targets, config.learning_rate.at(step));
    steps.push_back(clock_ms(CLOCK_THREAD_CPUTIME_ID) - start);
    WEFT_CHECK(report.is_updated, "a step that updates nothing computes less");
  }
  return steps;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "weft_thread_ranks PLAN CONFIG\n");
    return 2;
  }
  const Plan plan = must(read_plan_file(argv[1]));
  TrainConfig config = must(read_train_config_file(argv[2]));
  config.steps = kSteps;
  config.checkpoints = {};
  config.threads_per_rank = 1;
  const int cores = num_cores();

  std::vector<double> step_ms, processor_ms, bound_ms, ratio, work;
  for (int round = 0; round < kRounds; ++round) {
    const Steps real = train(plan, config);
    use_rank_threads(1);
    std::vector<double> alone(static_cast<size_t>(kSteps));
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      const std::vector<double> own = compute_alone(plan, config, rank);
      for (size_t step = 0; step < own.size(); ++step) alone[step] += own[step];
    }
    for (size_t step = 1; step < alone.size(); ++step) {
      step_ms.push_back(real.clock_ms[step]);
      processor_ms.push_back(real.processor_ms[step]);
      bound_ms.push_back(alone[step] / cores);
      ratio.push_back(step_ms.back() / bound_ms.back());
      work.push_back(processor_ms.back() / alone[step]);
    }
  }
  fmt::print(
      "{} thread ranks on {} cores, medians of {} steps: step {:.1f} ms, compute of all ranks / cores {:.1f} ms, ratio "
      "{:.3f}; processor time {:.1f} ms, {:.3f} times the compute\n",
      plan.world_size, cores, step_ms.size(), median(step_ms), median(bound_ms), median(ratio), median(processor_ms),
      median(work));
  return 0;
}
