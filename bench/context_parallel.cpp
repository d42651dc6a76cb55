// Context parallelism on one machine: training steps of a small Llama on one sequence of 8,192 tokens, on one thread
// rank and on two, each with one thread, by a ring and by Ulysses. Prints the speed against one rank, how much more the
// slowest rank computes than the mean (what is left of a step besides waiting for the other), and the activations that
// a rank holds after its forward against those of one rank.
#include <algorithm>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/clock.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/memory_count.h"

namespace {

using namespace weft;

constexpr int64_t kTokens = 8192, kLayers = 2, kRounds = 6;

struct Setting {
  const char* name;
  int64_t cp;
  int64_t ulysses;
};

Plan plan_of(const Setting& setting) {
  Plan plan;
  const Document document{.source = "bench", .root = Json::parse(R"({"model_type": "llama", "hidden_size": 256,
    "intermediate_size": 704, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1024, "tie_word_embeddings": false, "max_position_embeddings": 8192})")};
  plan.model = must(read_model(document, "small Llama"));
  plan.workload.global_batch_samples = 1;
  plan.world_size = setting.cp;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = 1};
  plan.precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};
  ModulePlan llm{.kind = ModuleKind::kLlm,
                 .placement = ModulePlacement::kBase,
                 .axis_order = default_axis_order(),
                 .layers = {{kLayers}},
                 .recompute = {{{}}}};
  llm.degrees() = {.cp = setting.cp, .cp_ulysses = setting.ulysses};
  for (int64_t rank = 0; rank < setting.cp; ++rank) llm.ranks.push_back(rank);
  plan.modules.push_back(llm);
  return plan;
}

struct Measured {
  double step_ms = 0;               ///< the fastest step
  std::vector<double> computed_ms;  ///< by rank, in that step
  std::vector<double> held_bytes;
};

Measured measure(const Setting& setting) {
  const Plan plan = plan_of(setting);
  const auto ranks = static_cast<size_t>(setting.cp);
  Measured best{.held_bytes = std::vector<double>(ranks)};
  std::mutex guard;
  std::vector<double> computed(ranks);
  const auto error = run_ranks({.size = setting.cp}, [&](World& world) {
    at::set_num_threads(1);
    const CountedThread counted(std::make_shared<MemoryCount>());
    const auto rank = must(TrainingRank::create(world, plan, {.seed = 1}));
    RawInputs raw;
    raw.input_ids = at::arange(kTokens, at::kLong).mul_(7919).remainder_(1000);
    raw.targets = raw.input_ids.roll(-1);
    raw.lengths = {kTokens};
    const std::vector<Inputs> microbatches = {
        must(prepare_inputs(rank->numbers(), rank->vocabulary(), raw)).to(rank->options())};
    const auto own = static_cast<size_t>(world.rank());
    for (int64_t round = 0; round <= kRounds; ++round) {
      world.all().barrier().wait();
      const int64_t before = current_memory_count()->current_bytes();
      const double waited = world.waited_ms();
      const double start = now_ms();
      const StepReport report = rank->step(microbatches, kTokens, 1e-3);
      const double computing_ms = now_ms() - start - (world.waited_ms() - waited);
      {
        const std::lock_guard lock(guard);
        computed[own] = computing_ms;
        for (size_t i = 0; i < report.events.size(); ++i) {
          if (report.events[i].action.kind == ActionKind::kForward)
            best.held_bytes[own] = static_cast<double>(report.memory[i].held_bytes - before);
        }
      }
      world.all().barrier().wait();
      const double step_ms = now_ms() - start;
      if (world.rank() != 0 || round == 0) continue;  // the first finds memory and starts threads
      const std::lock_guard lock(guard);
      if (best.step_ms > 0 && best.step_ms <= step_ms) continue;
      best.step_ms = step_ms;
      best.computed_ms = computed;
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return best;
}

}  // namespace

int main() {
  const Measured one = measure({"one rank", 1, 1});
  fmt::print("one rank: {:.0f} ms a step, {:.1f} MiB of activations\n", one.step_ms,
             one.held_bytes.front() / (1024 * 1024));
  for (const Setting& setting : {Setting{"ring of 2", 2, 1}, Setting{"Ulysses on 2", 2, 2}}) {
    const Measured two = measure(setting);
    const double mean = (two.computed_ms[0] + two.computed_ms[1]) / 2;
    const double most = std::max(two.computed_ms[0], two.computed_ms[1]);
    fmt::print(
        "{}: {:.0f} ms a step, {:.2f} times as fast; the slowest rank computes {:.1f} % more than the mean; "
        "activations {:.3f} and {:.3f} of one rank's\n",
        setting.name, two.step_ms, one.step_ms / two.step_ms, 100 * (most / mean - 1),
        two.held_bytes[0] / one.held_bytes[0], two.held_bytes[1] / one.held_bytes[0]);
  }
  return 0;
}
