// Writes the choices of a program's operators with all of their prices, for other solvers: weft_dump_shard
// MODEL[/MODULE] MESH NODES SAMPLES [SHARE]. With SHARE, one layer alone under a memory limit, that far between the
// least that a strategy takes and what the fastest takes; without, a ring of layers and no limit.
// tests/parity/check_shard.py reads it.
#include <cstdio>
#include <cstdlib>

#include "tests/support/source_tree.h"
#include "weft/meaning/strategy.h"
#include "weft/program/block_program.h"
#include "weft/shard/shard_search.h"
#include "weft/spec/scenario.h"

using namespace weft;

namespace {

/// Layers written out one after the other are another program than a repeat of them.
Program written_out(const Program& layers, int64_t count) {
  Program program = layers;
  program.repeats.front().count = count;
  return program;
}

class Dump {
 public:
  Dump(const ShardProblem& problem, bool is_ring) : problem_(problem), is_ring_(is_ring) {}

  Json run() {
    const Program& program = problem_.program();
    for (size_t op = 0; op < program.operators.size(); ++op) add_operator(op);
    for (size_t value = 0; value < program.values.size(); ++value) {
      if (problem_.is_priced(value)) add_value(value);
    }
    return {{"variables", variables_}, {"tables", tables_}};
  }

 private:
  /// A choice is an option and a way of holding its weights; tables ask for the option alone.
  void add_operator(size_t op) {
    Json costs = Json::array(), bytes = Json::array(), options = Json::array();
    for (size_t option = 0; option < problem_.options(op).size(); ++option) {
      const OperatorOption& each = problem_.options(op)[option];
      for (const StateOption& state : each.states) {
        costs.push_back(problem_.option_ms(each) + state.ms);
        bytes.push_back(state.bytes);
        options.push_back(option);
      }
    }
    variables_.push_back({{"costs", costs}, {"bytes", bytes}, {"options", options}});
  }

  /// The layouts that a value may be made in, and the variable that decides: an operator, or where it comes from.
  std::pair<size_t, std::vector<size_t>> maker_of(size_t value) {
    const Program& program = problem_.program();
    const Repeat& layers = program.repeats.front();
    // A value from the layer before is made by what makes the last one: the layers are a ring.
    const size_t made = is_ring_ && layers.carried_in == value ? layers.carried_out : value;
    std::vector<size_t> codes;
    if (const auto op = program.find_operator(program.values[made].name)) {
      for (const OperatorOption& option : problem_.options(*op)) codes.push_back(option.result);
      return {*op, codes};
    }
    codes = problem_.source_codes(made);
    Json costs = Json::array(), bytes = Json::array(), options = Json::array();
    for (size_t i = 0; i < codes.size(); ++i) {
      const ValuePrice price = problem_.price_source(made, codes[i]);
      costs.push_back(price.ms);
      bytes.push_back(price.bytes);
      options.push_back(i);
    }
    variables_.push_back({{"costs", costs}, {"bytes", bytes}, {"options", options}});
    return {variables_.size() - 1, codes};
  }

  void add_value(size_t value) {
    const auto [maker, codes] = maker_of(value);
    const std::vector<size_t> readers = problem_.program().readers_of(value);
    Json costs = Json::array(), bytes = Json::array();
    std::vector<std::pair<size_t, size_t>> chosen;
    for (const size_t reader : readers) chosen.emplace_back(reader, 0);
    for (const size_t code : codes) {
      while (true) {
        const ValuePrice price = problem_.price_value(value, code, chosen);
        costs.push_back(problem_.microbatches() * price.ms);
        bytes.push_back(price.bytes);
        size_t place = chosen.size();
        bool is_done = true;
        while (place-- > 0) {
          if (++chosen[place].second < problem_.options(chosen[place].first).size()) {
            is_done = false;
            break;
          }
          chosen[place].second = 0;
        }
        if (is_done) break;
      }
    }
    Json names = Json::array({maker});
    for (const size_t reader : readers) names.push_back(reader);
    tables_.push_back({{"variables", names}, {"costs", costs}, {"bytes", bytes}});
  }

  const ShardProblem& problem_;
  bool is_ring_;
  Json variables_ = Json::array(), tables_ = Json::array();
};

/// What leaves the layer is no summand: its last operator has these options left.
void forbid_summands(const ShardProblem& problem, Json& dumped) {
  const Program& program = problem.program();
  const size_t value = program.repeats.front().carried_out;
  const size_t last = *program.find_operator(program.values[value].name);
  Json& variable = dumped["variables"][last];
  for (size_t i = 0; i < variable["options"].size(); ++i) {
    const OperatorOption& option = problem.options(last)[variable["options"][i].get<size_t>()];
    for (const AxisState& state : problem.transitions(value).codes().states(option.result)) {
      if (state.is_partial()) variable["costs"][i] = 1e12;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return 2;
  const Scenarios scenarios(source_tree() / "scenarios");
  std::string name = argv[1];
  ModuleKind kind = ModuleKind::kLlm;
  if (name.ends_with("/vision")) kind = ModuleKind::kVision;
  if (name.ends_with("/audio")) kind = ModuleKind::kAudio;
  name = name.substr(0, name.find('/'));
  const Model model = *scenarios.model(name);
  const std::vector<Axis> axes = *parse_mesh(argv[2]);
  const Cluster cluster = *scenarios.cluster("dgx_h100", std::atoll(argv[3]));
  const Module& module = *model.find(kind);
  const Program layers = *program_of_layers(module, 0, {.samples = std::atoll(argv[4]), .rows = 4096}, model.name);
  const ShardSetting setting{.cluster = cluster, .links = *AxisLinks::create(axes, cluster)};
  const auto problem_of = [&](int64_t count) {
    return *ShardProblem::create(written_out(layers, count), setting, ShardLimits::none(layers, axes.size()));
  };
  const ShardProblem one = problem_of(1);
  Json dumped = Dump(one, /*is_ring=*/argc == 5).run();
  if (argc == 5) {
    // Far from both ends, a layer more costs the best ring of layers' share.
    const double many = search_strategy(problem_of(2048), {})->totals.ms();
    const double fewer = search_strategy(problem_of(1024), {})->totals.ms();
    dumped["layer_ms"] = (many - fewer) / 1024;
  } else {
    forbid_summands(one, dumped);
    const double most = search_strategy(one, {})->totals.bytes();
    const double least = evaluate(one, ShardSolver(one).solve(1e3, all_allowed(one))->assignment).bytes();
    const double limit = least + std::atof(argv[5]) * (most - least);
    const ShardSolution found = *search_strategy(one, {.memory_bytes = limit});
    dumped["memory_bytes"] = limit;
    dumped["layer_ms"] = found.totals.ms();
    dumped["is_optimal"] = found.is_optimal;
  }
  std::printf("%s\n", dumped.dump().c_str());
  return 0;
}
