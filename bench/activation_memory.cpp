// Memory of a pipeline's ranks, predicted and measured: a small Llama on four thread ranks with 1F1B, eight
// microbatches, without and with recomputation, in fp32 and bf16. "held" is what is there between actions on top of
// weights, gradients and optimizer states: activations, and what is on its way from stage to stage. "peak" is the most
// at any time of a forward or backward, to which the prediction adds workspace and buffers.
#include <algorithm>
#include <mutex>

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/held_state.h"
#include "weft/pipeline/training_rank.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/memory_count.h"

namespace {

using namespace weft;

constexpr int64_t kRanks = 4, kMicrobatches = 8, kLayers = 16, kWidth = 256, kTokens = 256;

Plan plan_of(Precision precision, bool recomputes) {
  Plan plan;
  const Document document{.source = "bench", .root = Json::parse(R"({"model_type": "llama", "hidden_size": 256,
    "intermediate_size": 704, "num_hidden_layers": 16, "num_attention_heads": 8, "num_key_value_heads": 4,
    "vocab_size": 1024, "tie_word_embeddings": false, "max_position_embeddings": 8192})")};
  plan.model = must(read_model(document, "small Llama"));
  plan.cluster = must(read_cluster_file(std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/clusters/local_cpu.yaml"));
  plan.workload = {.global_batch_samples = kMicrobatches,
                   .tokens = Distribution::constant(static_cast<double>(kTokens)),
                   .precision = precision};
  plan.world_size = kRanks;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = kMicrobatches};
  plan.precision = {.compute = precision, .master = Precision::kFp32, .reduce = Precision::kFp32};
  ModulePlan llm{.kind = ModuleKind::kLlm,
                 .placement = ModulePlacement::kBase,
                 .ranks = {0, 1, 2, 3},
                 .axis_order = default_axis_order()};
  llm.pp = kRanks;
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    llm.layers.push_back({kLayers / kRanks});
    llm.recompute.push_back({RecomputeCounts{.full = recomputes ? kLayers / kRanks : 0}});
  }
  plan.modules.push_back(llm);
  return plan;
}

struct Measured {
  int64_t held_bytes = 0;
  int64_t peak_bytes = 0;
};

std::vector<Measured> measure(const Plan& plan) {
  std::vector<Measured> ranks(kRanks);
  const auto error = run_ranks({.size = kRanks}, [&](World& world) {
    at::set_num_threads(1);
    const CountedThread counted(std::make_shared<MemoryCount>());
    auto rank = must(TrainingRank::create(world, plan, {.seed = 1}));
    RawInputs raw;
    raw.input_ids = at::randint(1000, {kTokens}, at::kLong);
    raw.targets = raw.input_ids.roll(-1);
    raw.lengths = {kTokens};
    const Inputs inputs = must(prepare_inputs(rank->numbers(), rank->vocabulary(), raw)).to(rank->options());
    const std::vector<Inputs> microbatches(kMicrobatches, inputs);
    // Gradients come with the first backward.
    const int64_t before = current_memory_count()->current_bytes() + held_state(plan, world.rank()).gradients;
    const StepReport report = rank->step(microbatches, kMicrobatches * kTokens, 1e-3);
    Measured& most = ranks[static_cast<size_t>(world.rank())];
    for (size_t i = 0; i < report.events.size(); ++i) {
      if (!is_pipeline_compute(report.events[i].action.kind)) continue;
      most.held_bytes = std::max(most.held_bytes, report.memory[i].held_bytes - before);
      most.peak_bytes = std::max(most.peak_bytes, report.memory[i].peak_bytes - before);
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return ranks;
}

}  // namespace

int main() {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    for (const bool recomputes : {false, true}) {
      const Plan plan = plan_of(precision, recomputes);
      const std::vector<Measured> measured = measure(plan);
      const PlanReport report = must(simulate_plan(plan));
      fmt::print("{}, {}: KiB predicted, measured, measured / predicted\n", name_of(precision),
                 recomputes ? "all layers recomputed" : "nothing recomputed");
      for (size_t rank = 0; rank < measured.size(); ++rank) {
        const MemorySplit& memory = report.rows[rank].memory;
        // What came from the stage before is an activation; what goes to the next one lies beside them until it is
        // there.
        const bool sends = rank + 1 < measured.size();
        const double boundary = static_cast<double>(kTokens * kWidth) * num_bytes(precision);
        const double held = (memory.activations + (sends ? 2 * boundary : 0)) / 1024;
        const double peak = (memory.activations + memory.workspace + memory.buffers) / 1024;
        const double found_held = static_cast<double>(measured[rank].held_bytes) / 1024;
        const double found_peak = static_cast<double>(measured[rank].peak_bytes) / 1024;
        fmt::print(
            "  pipeline rank {}: held {:8.0f} ({:.0f} activations) {:8.0f} {:6.3f}   peak {:8.0f} ({:.0f} workspace, "
            "{:.0f} buffers) "
            "{:8.0f} "
            "{:6.3f}\n",
            rank, held, memory.activations / 1024, found_held, found_held / held, peak, memory.workspace / 1024,
            memory.buffers / 1024, found_peak, found_peak / peak);
      }
    }
  }
  return 0;
}
