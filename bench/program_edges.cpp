// Megatron's tensor parallelism of a transformer layer on two thread ranks, as a strategy of the layer's program that
// the runner executes, against today's layers with their own places of communication: forward and backward of one
// layer, in turn, in one run. The program is as training has it (layer_program.h), and as users may write it, with
// gates that alternate with what they let through and with angles instead of cosines and sines: other work than the
// layers'. With the argument "edges", "users" or "layers" one of them alone runs, for profilers, as often as a second
// argument says.
#include <algorithm>
#include <ctime>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/clock.h"
#include "weft/base/median.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/layers/transformer_layer.h"
#include "weft/parallelize/tensor_parallel.h"
#include "weft/program/block_program.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/transformer_block.h"
#include "weft/runner/program_runner.h"

namespace {

using namespace weft;

constexpr int64_t kRanks = 2, kSamples = 2, kRows = 128, kWidth = 512, kHeads = 8, kKeyHeads = 4, kHeadDim = 64,
                  kInner = 1408;
constexpr int kTurns = 61;

/// What is run.
struct Chosen {
  std::string only;  ///< "edges", "users" or "layers"; empty: all, in turn
  int turns = kTurns;
};

Program layer_program(bool is_users) {
  const TransformerBlockShape shape{
      .name = "layer",
      .width = kWidth,
      .attention = {.attention = {.heads = kHeads, .kv_heads = kKeyHeads, .head_dim = kHeadDim, .mask = Mask::kCausal}},
      .mlp = {.intermediate = kInner}};
  Module module{.width = kWidth, .distinct_layers = {make_transformer_block(shape)}, .layers = {0}};
  ProgramSizes sizes{.samples = kSamples, .rows = kRows};
  if (!is_users) sizes.gate_shares = kRanks, sizes.has_rotary_tables = true;
  return must(unrolled(must(program_of_layers(module, 0, sizes, "layer")))).program;
}

/// Heads and the MLP's width are cut, all else is the same on both ranks.
RunStrategy megatron(const Program& program) {
  RunStrategy strategy;
  for (const Operator& op : program.operators) {
    std::optional<size_t> cut = op.rule.find("k");
    if (!cut) cut = op.rule.find("f");
    strategy.operators.push_back({cut ? Choice::cut(*cut) : Choice::same()});
  }
  for (size_t value = 0; value < program.values.size(); ++value) {
    std::vector<AxisState>& states = strategy.sources.emplace_back();
    if (program.values[value].role == ProgramValue::Role::kResult) continue;
    const Operator& reader = program.operators[program.readers_of(value).front()];
    const auto operand =
        static_cast<size_t>(std::find(reader.operands.begin(), reader.operands.end(), value) - reader.operands.begin());
    const size_t index = program.readers_of(value).front();
    const AxisState used = states_of(reader.rule, strategy.operators[index][0]).operands[operand];
    states.push_back(used.is_shard() ? used : AxisState::replicated());
  }
  return strategy;
}

ParameterPtr parameter(std::vector<int64_t> shape) {
  auto made = c10::make_intrusive<Parameter>();
  made->value = (at::randn(shape) * 0.02).set_requires_grad(true);
  return made;
}

/// A rank's half of a layer.
TransformerLayer half_layer() {
  const HeadCounts heads{kHeads / kRanks, kKeyHeads / kRanks, kHeadDim};
  TransformerLayer layer;
  layer.attention_norm = {.weight = parameter({kWidth}), .epsilon = 1e-6};
  layer.attention = {.heads = heads,
                     .mask = {.is_causal = true},
                     .qkv = parameter({heads.packed_width(), kWidth}),
                     .out = parameter({kWidth, heads.heads * kHeadDim})};
  layer.mlp_norm = {.weight = parameter({kWidth}), .epsilon = 1e-6};
  layer.mlp = {.up = parameter({2 * kInner / kRanks, kWidth}), .down = parameter({kWidth, kInner / kRanks})};
  return layer;
}

/// Milliseconds of turns: by the clock, and of the rank's own processor, which others on the machine hardly move.
struct Turns {
  std::vector<double> wall_ms, own_ms;

  static double own_now_ms() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  }
  template <typename Run>
  void add(Run run) {
    const double wall = now_ms(), own = own_now_ms();
    run();
    own_ms.push_back(own_now_ms() - own);
    wall_ms.push_back(now_ms() - wall);
  }
};

double least(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

/// The layer's program with its runner and what is given to it.
class Edges {
 public:
  Edges(bool is_users, const MeshGroups& groups)
      : program_(layer_program(is_users)), runner_(must(ProgramRunner::create(program_, megatron(program_), groups))) {
    given_.resize(program_.values.size());
    for (size_t value = 0; value < given_.size(); ++value) {
      if (program_.values[value].role != ProgramValue::Role::kResult)
        given_[value] = at::randn(runner_.layout(value).local_shape(groups.position())) * 0.02;
    }
  }
  Edges(const Edges&) = delete;
  Edges& operator=(const Edges&) = delete;

  void run(const at::Tensor& slope) {
    gradients_.clear();
    RunnerTape tape;
    runner_.forward(given_, {}, tape);
    gradients_ = runner_.backward({slope}, tape);
  }

 private:
  const Program program_;
  ProgramRunner runner_;
  std::vector<at::Tensor> given_;
  std::vector<at::Tensor> gradients_;  // kept until the next turn, as layers keep theirs
};

void run_rank(World& world, const Chosen& chosen) {
  const std::string& only = chosen.only;
  at::set_num_threads(1);
  const Mesh mesh = *Mesh::contiguous({{"tp", kRanks}});
  const MeshGroups groups = must(MeshGroups::create(world, mesh));
  Edges edges(false, groups), users(true, groups);
  const at::Tensor slope = at::randn({kSamples, kRows, kWidth});

  const TransformerLayer layer = half_layer();
  TensorParallel parallel(groups, /*divides_rows=*/false);
  const ActivationSites sites = parallel.sites(kSamples * kRows);
  const RunContext context{.sites = &sites};
  const PackedSegments segments(std::vector<int64_t>(kSamples, kRows));
  const at::Tensor angles = at::randn({kSamples * kRows, kHeadDim / 2});
  const RotaryTable rotary{angles.cos(), angles.sin()};
  const at::Tensor x = at::randn({kSamples * kRows, kWidth}).set_requires_grad(true);
  const at::Tensor flat_slope = slope.flatten(0, 1);

  Turns by_edges, by_users, by_layers;
  for (int turn = 0; turn < chosen.turns; ++turn) {
    const auto run_edges = [&](const char* name, Edges& which, Turns& turns) {
      if (!only.empty() && only != name) return;
      world.all().barrier().wait();
      turns.add([&] { which.run(slope); });
    };
    const auto run_layers = [&] {
      if (!only.empty() && only != "layers") return;
      world.all().barrier().wait();
      by_layers.add([&] {
        for (const ParameterPtr& one : {layer.attention_norm.weight, layer.attention.qkv, layer.attention.out,
                                        layer.mlp_norm.weight, layer.mlp.up, layer.mlp.down})
          one->gradient.reset();
        x.mutable_grad().reset();
        layer.forward(x, {.segments = segments, .rotary = rotary}, context).backward(flat_slope);
      });
    };
    // Each comes first, second and last.
    for (int i = 0; i < 3; ++i) {
      const int which = (turn + i) % 3;
      if (which == 0) run_edges("edges", edges, by_edges);
      if (which == 1) run_layers();
      if (which == 2) run_edges("users", users, by_users);
    }
  }
  if (world.rank() != 0 || !only.empty()) return;
  fmt::print("a layer of width {} on {} ranks, {} rows, through edges and by layers\n", kWidth, kRanks,
             kSamples * kRows);
  const auto show = [](const char* what, double through_edges, double layers) {
    fmt::print("  {:<32} {:8.2f} {:8.2f} ms: {:.3f} times\n", what, through_edges, layers, through_edges / layers);
  };
  const auto show_all = [&](const Turns& through_edges) {
    show("median by the clock", median_of(through_edges.wall_ms), median_of(by_layers.wall_ms));
    show("least by the clock", least(through_edges.wall_ms), least(by_layers.wall_ms));
    show("median of processor time", median_of(through_edges.own_ms), median_of(by_layers.own_ms));
    show("least of processor time", least(through_edges.own_ms), least(by_layers.own_ms));
  };
  show_all(by_edges);
  fmt::print("a user's program of it, with gates that alternate and angles\n");
  show_all(by_users);
}

}  // namespace

int main(int count, char** words) {
  at::set_num_threads(1);
  Chosen chosen;
  if (count > 1) chosen.only = words[1];
  if (count > 2) chosen.turns = std::stoi(words[2]);
  if (const auto error = run_thread_ranks(kRanks, {}, [&](World& world) { run_rank(world, chosen); }))
    fmt::print(stderr, "{}\n", error->message());
  return 0;
}
