// What the executor costs beside the blocks that it runs, for a small Llama whose layers take about a millisecond each:
// time of a step outside forwards and backwards, and forwards and backwards themselves against the same ones called in
// a plain loop.
#include <algorithm>
#include <chrono>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/models/initialize.h"
#include "weft/models/network.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"

namespace {

using namespace weft;

constexpr int64_t kMicrobatches = 8, kLayers = 8, kTokens = 40;
constexpr int kSteps = 9;

Model small_llama() {
  const Document document{.source = "bench", .root = Json::parse(R"({"model_type": "llama", "hidden_size": 192,
    "intermediate_size": 512, "num_hidden_layers": 8, "num_attention_heads": 4, "vocab_size": 512,
    "tie_word_embeddings": false, "max_position_embeddings": 8192})")};
  return must(read_model(document, "small Llama"));
}

RawInputs batch() {
  RawInputs raw;
  raw.input_ids = at::randint(500, {kTokens}, at::kLong);
  raw.targets = raw.input_ids.roll(-1);
  raw.lengths = {kTokens};
  return raw;
}

Plan plan_of(const Model& model, int64_t pp) {
  Plan plan;
  plan.model = model;
  plan.world_size = pp;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.workload.global_batch_samples = kMicrobatches;
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = kMicrobatches};
  plan.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  ModulePlan llm{.kind = ModuleKind::kLlm, .placement = ModulePlacement::kBase, .axis_order = default_axis_order()};
  llm.pp = pp;
  for (int64_t rank = 0; rank < pp; ++rank) {
    llm.ranks.push_back(rank);
    llm.layers.push_back({kLayers / pp});
    llm.recompute.push_back({{}});
  }
  plan.modules.push_back(llm);
  return plan;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Of one rank, medians over steps.
struct Times {
  double compute_ms = 0;  ///< forwards and backwards, waiting for others' tensors included
  double rest_ms = 0;     ///< all else up to the update
};

Times times_of(const std::vector<std::vector<TimelineEvent>>& steps) {
  std::vector<double> compute, rest;
  for (const auto& events : steps) {
    double in_compute = 0, end = events.front().start_ms;
    for (const TimelineEvent& event : events) {
      if (event.action.kind == ActionKind::kUpdate) break;
      if (is_pipeline_compute(event.action.kind)) in_compute += event.end_ms - event.start_ms;
      end = event.end_ms;
    }
    compute.push_back(in_compute);
    rest.push_back(end - events.front().start_ms - in_compute);
  }
  return {median(compute), median(rest)};
}

/// A step's forwards and backwards in a loop, without an executor.
class PlainLoop {
 public:
  explicit PlainLoop(const Model& model)
      : maker_(at::TensorOptions().dtype(at::kFloat)), network_(must(Network::create(model, maker_))) {
    initialize_weights(maker_.all(), 1);
    inputs_ = must(prepare_inputs(network_.numbers(), network_.decoder().vocabulary(), batch()));
  }

  double step_ms() {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t m = 0; m < kMicrobatches; ++m) network_.loss_sum(inputs_, {}).backward();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  WholeParameters maker_;
  Network network_;
  Inputs inputs_;
};

void measure(const Model& model, int64_t pp) {
  const Plan plan = plan_of(model, pp);
  std::vector<Times> ranks(static_cast<size_t>(pp));
  std::vector<double> plain;
  const auto error = run_ranks({.size = pp}, [&](World& world) {
    at::set_num_threads(1);
    auto rank = must(TrainingRank::create(world, plan, {.seed = 1}));
    const Inputs inputs = must(prepare_inputs(rank->numbers(), rank->vocabulary(), batch())).to(rank->options());
    const std::vector<Inputs> microbatches(kMicrobatches, inputs);
    std::unique_ptr<PlainLoop> loop = pp == 1 ? std::make_unique<PlainLoop>(model) : nullptr;
    rank->step(microbatches, kMicrobatches * kTokens, 1e-4);
    if (loop) loop->step_ms();
    std::vector<std::vector<TimelineEvent>> steps;
    for (int step = 0; step < kSteps; ++step) {
      steps.push_back(rank->step(microbatches, kMicrobatches * kTokens, 1e-4).events);
      if (loop) plain.push_back(loop->step_ms());
    }
    ranks[static_cast<size_t>(world.rank())] = times_of(steps);
  });
  WEFT_CHECK(!error, "{}", error->message());
  for (size_t r = 0; r < ranks.size(); ++r) {
    fmt::print(
        "pp {}, rank {}: forwards and backwards {:.2f} ms ({:.2f} ms a layer and pass), all else {:.3f} ms: {:.2f} %\n",
        pp, r, ranks[r].compute_ms, ranks[r].compute_ms / static_cast<double>(kMicrobatches * 2 * kLayers / pp),
        ranks[r].rest_ms, 100 * ranks[r].rest_ms / ranks[r].compute_ms);
  }
  if (plain.empty()) return;
  const double all = ranks.front().compute_ms + ranks.front().rest_ms;
  fmt::print("pp 1: the same in a plain loop {:.2f} ms: the executor takes {:+.2f} %\n", median(plain),
             100 * (all / median(plain) - 1));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  const Model model = small_llama();
  measure(model, 1);
  measure(model, 2);
  return 0;
}
