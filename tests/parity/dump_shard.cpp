// Writes the choices of a program's operators with all of their prices, for other solvers: weft_dump_shard MODEL MESH
// NODES SAMPLES. tests/parity/check_shard.py reads it.
#include <cstdio>
#include <cstdlib>

#include "tests/support/source_tree.h"
#include "weft/program/block_program.h"
#include "weft/shard/shard_search.h"
#include "weft/shard/strategy.h"
#include "weft/spec/scenario.h"

using namespace weft;

namespace {

/// Layers written out one after the other are another program than a repeat of them.
Program written_out(const Program& layers, int64_t count) {
  Program program = layers;
  program.repeats.front().count = count;
  return program;
}

Json prices_of(const ShardProblem& problem) {
  const Program& program = problem.program();
  Json variables = Json::array(), tables = Json::array();
  for (size_t op = 0; op < program.operators.size(); ++op) {
    Json costs = Json::array();
    for (const OperatorOption& option : problem.options(op))
      costs.push_back(problem.option_ms(option) + option.states.front().ms);
    variables.push_back({{"name", program.operators[op].name}, {"costs", costs}});
  }
  // A value from the layer before is made by what makes the last one: the layers are a ring.
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (!problem.is_priced(value)) continue;
    const bool is_carried = !program.repeats.empty() && program.repeats.front().carried_in == value;
    const size_t maker_value = is_carried ? program.repeats.front().carried_out : value;
    const auto maker = program.find_operator(program.values[maker_value].name);
    if (!maker) continue;
    const std::vector<size_t> readers = program.readers_of(value);
    Json entries = Json::array();
    std::vector<std::pair<size_t, size_t>> chosen;
    for (const size_t reader : readers) chosen.emplace_back(reader, 0);
    for (const OperatorOption& made : problem.options(*maker)) {
      while (true) {
        entries.push_back(problem.microbatches() * problem.price_value(value, made.result, chosen).ms);
        size_t place = chosen.size();
        bool is_done = true;
        while (place-- > 0) {
          if (++chosen[place].second < problem.options(chosen[place].first).size()) {
            is_done = false;
            break;
          }
          chosen[place].second = 0;
        }
        if (is_done) break;
      }
    }
    Json names = Json::array({*maker});
    for (const size_t reader : readers) names.push_back(reader);
    tables.push_back({{"variables", names}, {"costs", entries}});
  }
  return {{"variables", variables}, {"tables", tables}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const Scenarios scenarios(source_tree() / "scenarios");
  const Model model = *scenarios.model(argv[1]);
  const std::vector<Axis> axes = *parse_mesh(argv[2]);
  const Cluster cluster = *scenarios.cluster("dgx_h100", std::atoll(argv[3]));
  const Module& module = *model.find(ModuleKind::kLlm);
  const Program layers = *program_of_layers(module, 0, {.samples = std::atoll(argv[4]), .rows = 4096}, model.name);
  const ShardSetting setting{.cluster = cluster, .links = *AxisLinks::create(axes, cluster)};
  const auto problem_of = [&](int64_t count) {
    return *ShardProblem::create(written_out(layers, count), setting, ShardLimits::none(layers, axes.size()));
  };
  // Far from both ends, a layer more costs the best ring of layers' share.
  const double many = search_strategy(problem_of(2048), {})->totals.ms();
  const double fewer = search_strategy(problem_of(1024), {})->totals.ms();
  Json dumped = prices_of(problem_of(1));
  dumped["layer_ms"] = (many - fewer) / 1024;
  std::printf("%s\n", dumped.dump().c_str());
  return 0;
}
