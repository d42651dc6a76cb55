// Strategies of a transformer layer on two thread ranks: how long each takes, beside what a profile of the machine
// says. Strategies are drawn before anything runs. Every run of one lies between two runs of the usual strategy, and
// every round has another order. Prints a JSON document, which strategy_order.py reads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "tests/support/program/drawn_strategies.h"
#include "weft/base/clock.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/cost/apply_profile.h"
#include "weft/cost/group_link.h"
#include "weft/cost/program_memory.h"
#include "weft/cost/program_time.h"
#include "weft/engine/profiler.h"
#include "weft/program/program_strategy.h"
#include "weft/runner/program_runner.h"
#include "weft/simulate/wanted_operators.h"
#include "weft/spec/model_reader.h"

namespace {

using namespace weft;

constexpr int64_t kRanks = 2, kSamples = 2, kRows = 128;
constexpr const char* kLayer = R"(weft_program 1 layer
dim b 2
dim s 128
dim h 512
dim k 1024 unit 256
dim o 512 unit 128
dim p 2816 unit 2
dim f 1408
dim a 32
input x [b s h]
data angles [b s a]
repeat 1 x
weight g1 [h]
n1 = norm(x, g1) : b s h, h -> b s h
weight wqkv [k h]
qkv = einsum(n1, wqkv) : b s h, k h -> b s k
turned = custom(qkv, angles) : b s k, b s a -> b s k ; whole a ; linear 0 ; heads 8 4 64 ; calls rotary
mix = attention(turned) : b s k -> b s k ; as b s o ; heads 8 4 64 ; mask causal
weight wo [h o]
out = einsum(mix, wo) : b s o, h o -> b s h
r1 = add(x, out) : b s h, b s h -> b s h
weight g2 [h]
n2 = norm(r1, g2) : b s h, h -> b s h
weight wup [p h]
up = einsum(n2, wup) : b s h, p h -> b s p
act = elementwise(up) : b s f -> b s f ; as b s f ; does silu
weight wdown [h f]
down = einsum(act, wdown) : b s f, h f -> b s h
y = add(r1, down) : b s h, b s h -> b s h
end y
data slope [b s h]
product = multiply(y, slope) : b s h, b s h -> b s h
loss = sum(product) : b s h ->
)";

struct Options {
  size_t strategies = 30;
  uint64_t seed = 1;
  int64_t most_rounds = 9;
  double seconds = 200;
  std::string out;
};

Options read_options(int count, char** words) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string key = words[i], value = words[i + 1];
    if (key == "--seed") options.seed = std::stoull(value);
    if (key == "--strategies") options.strategies = std::stoull(value);
    if (key == "--rounds") options.most_rounds = std::stoll(value);
    if (key == "--seconds") options.seconds = std::stod(value);
    if (key == "--out") options.out = value;
  }
  return options;
}

/// Links and operators of this machine.
struct Machine {
  Cluster cluster;
  Profile profile;
};

Machine measure_machine(const Model& model, const std::string& block, double seconds) {
  const MachineReport report = must(look_at_machine({.device = "cpu", .ranks = kRanks}));
  const BlockShape shape{.module = ModuleKind::kLlm,
                         .block = block,
                         .tp = kRanks,
                         .busy_ranks = kRanks,
                         .tokens = kSamples * kRows,
                         .sequence_tokens = kRows};
  const std::atomic<bool> stop = false;
  ProfileRequest request{.model = model,
                         .ranks = kRanks,
                         .profile = {.device = report.cluster.device.name, .precision = Precision::kFp32},
                         .operators = wanted_operators(model, {shape}),
                         .copy_bytes_per_ms = report.copy_bytes_per_ms,
                         .time_limit_s = seconds,
                         .stop = &stop};
  Machine machine{.cluster = report.cluster, .profile = must(measure_profile(request))->profile};
  apply_links(machine.profile, machine.cluster);
  return machine;
}

/// One strategy on one rank, with numbers to compute on.
struct Strategy {
  std::unique_ptr<const BlockProgram> block;
  std::unique_ptr<ProgramRunner> runner;
  std::vector<at::Tensor> given;
  at::Tensor slope;

  Strategy(const BlockProgram& of, const MeshGroups& groups) : block(std::make_unique<const BlockProgram>(of)) {
    const Program& program = block->program;
    runner = std::make_unique<ProgramRunner>(must(ProgramRunner::create(program, run_strategy(*block), groups)));
    for (size_t value = 0; value < program.values.size(); ++value) {
      if (program.values[value].role == ProgramValue::Role::kResult) {
        given.emplace_back();
      } else {
        given.push_back(at::randn(runner->layout(value).local_shape(groups.position())) * 0.1);
      }
    }
    slope = at::randn(runner->layout(runner->outputs().front()).local_shape(groups.position()));
  }

  void run() {
    RunnerTape tape;
    runner->forward(given, {}, tape);
    runner->backward({slope}, tape);
  }
};

/// Steps of a run, in milliseconds: of both ranks, which begin and end together.
std::vector<double> steps_of(Strategy& strategy, World& world) {
  constexpr int kSteps = 5;
  std::vector<double> steps;
  for (int step = 0; step <= kSteps; ++step) {
    world.all().barrier().wait();
    const double begin = now_ms();
    strategy.run();
    world.all().barrier().wait();
    if (step > 0) steps.push_back(now_ms() - begin);  // the first finds the memory of another strategy
  }
  return steps;
}

struct Run {
  int64_t round = 0;
  size_t strategy = 0;
  std::vector<double> before, steps, after;
};

std::vector<Run> measure(const std::vector<BlockProgram>& blocks, const Options& options, double until_ms) {
  std::vector<Run> runs;
  const auto body = [&](World& world) {
    at::set_num_threads(1);
    const Mesh mesh = *Mesh::contiguous({{"tp", kRanks}});
    const MeshGroups groups = must(MeshGroups::create(world, mesh));
    std::vector<Strategy> strategies;
    for (const BlockProgram& block : blocks) strategies.emplace_back(block, groups);
    for (Strategy& strategy : strategies) strategy.run();
    std::mt19937_64 random(options.seed);
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    double longest_ms = 0;
    for (int64_t round = 0; round < options.most_rounds; ++round) {
      const double begin = now_ms();
      int64_t goes_on = round == 0 || begin + longest_ms < until_ms ? 1 : 0;
      world.all().broadcast(Buffer{.data = &goes_on, .count = 1, .type = DataType::kInt64}, 0).wait();
      if (goes_on == 0) break;
      std::shuffle(order.begin(), order.end(), random);
      std::vector<double> before = steps_of(strategies.front(), world);
      for (const size_t strategy : order) {
        Run run{.round = round, .strategy = strategy, .before = std::move(before)};
        run.steps = steps_of(strategies[strategy], world);
        run.after = before = steps_of(strategies.front(), world);
        if (world.rank() == 0) runs.push_back(std::move(run));
      }
      longest_ms = std::max(longest_ms, now_ms() - begin);
    }
  };
  if (const auto error = run_thread_ranks(kRanks, {}, body)) {
    fmt::print(stderr, "{}\n", error->message());
    std::exit(1);
  }
  return runs;
}

/// "qkv: cut k, mix: cut k": what it does otherwise than the usual strategy.
std::string words_of(const BlockProgram& block, const BlockProgram& usual) {
  std::string words;
  for (size_t op = 0; op < block.num_own; ++op) {
    if (block.choices[op] == usual.choices[op]) continue;
    const Operator& own = block.program.operators[op];
    words += fmt::format("{}{} {}", words.empty() ? "" : ", ", own.name, text_of(own.rule, block.choices[op]));
  }
  return words.empty() ? "usual" : words;
}

}  // namespace

int main(int count, char** words) {
  const Options options = read_options(count, words);
  const double begin_ms = now_ms();
  const Model model =
      must(read_model({.source = "layer", .root = {{"model_type", "weft_program"}, {"program", kLayer}}}, "layer"));
  const Block& layer = model.modules.back().distinct_layers.front();
  std::vector<BlockProgram> blocks;
  for (std::vector<Choice>& choices : drawn_strategies(*layer.program, options.strategies, options.seed))
    blocks.push_back(with_choices(*layer.program, std::move(choices)));

  const Machine machine = measure_machine(model, layer.name, 0.4 * options.seconds);
  const double profiled_s = (now_ms() - begin_ms) / 1e3;
  const OperatorTimes times(machine.profile, kRanks);
  const GroupLink link =
      link_of(machine.cluster,
              {.link = LinkKind::kWithinNode, .num_ranks = kRanks, .num_nodes = 1, .most_ranks_per_node = kRanks});
  const BlockSetting setting{.tp = kRanks, .precision = Precision::kFp32, .tp_link = link};
  const Segments segments = {{static_cast<double>(kRows), static_cast<double>(kSamples)}};
  Json document = {{"seed", options.seed}, {"profile_s", profiled_s}, {"reference", "usual"}};
  for (const BlockProgram& block : blocks) {
    const ProgramMeaning meaning(block, ranks_of(setting));
    const auto with_exchanges = [&](const ProgramTime& price) {
      BlockTime time = price.time;
      add_communication(meaning, setting, machine.cluster, segments, price, time);
      return time;
    };
    const auto total = [](const BlockTime& time) {
      double ms = 0;
      for (const PassTime& pass : {time.forward, time.backward_input, time.backward_weight})
        ms += pass.compute_ms + pass.tp_ms;
      return ms;
    };
    const ProgramTime price = program_time(meaning, setting, machine.cluster, segments, &times);
    const BlockTime predicted = with_exchanges(price);
    double exchanged_ms = 0;
    for (const PassTime& pass : {predicted.forward, predicted.backward_input, predicted.backward_weight})
      exchanged_ms += pass.tp_ms;
    document["strategies"].push_back(
        {{"name", words_of(block, blocks.front())},
         {"predicted_ms", total(predicted)},
         {"exchanged_ms", exchanged_ms},
         {"measured_operators", price.num_measured},
         {"scaled_operators", price.num_scaled},
         {"operators", block.program.operators.size()},
         {"formula_ms", total(with_exchanges(program_time(meaning, setting, machine.cluster, segments)))}});
  }
  for (const Run& run : measure(blocks, options, begin_ms + 0.97 * options.seconds * 1e3))
    document["runs"].push_back({{"round", run.round},
                                {"strategy", run.strategy},
                                {"reference_before_ms", run.before},
                                {"steps_ms", run.steps},
                                {"reference_after_ms", run.after}});
  document["profile"] = to_json(machine.profile);
  document["seconds"] = (now_ms() - begin_ms) / 1e3;
  const std::string text = document.dump(1) + "\n";
  if (options.out.empty()) {
    fmt::print("{}", text);
  } else {
    std::ofstream(options.out) << text;
  }
  return 0;
}
