#pragma once

#include <cstdint>
#include <random>

#include "weft/shard/shard_solver.h"

namespace weft {

/// A cluster of two nodes of four devices with links of very different speed.
Cluster small_cluster(int64_t nodes, int64_t devices_per_node);

/// A program of at most eight operators of all kinds, some in a repeat where `has_repeat`.
Program random_program(std::mt19937_64& random, bool has_repeat);

/// A random program on a random mesh of two axes, narrowed by random pins until it has at most so many strategies.
ShardProblem random_problem(std::mt19937_64& random, double most_strategies, bool has_repeat);

/// The number of strategies of a problem.
double num_strategies(const ShardProblem& problem);

/// Calls with every strategy.
template <typename Body>
void for_each_strategy(const ShardProblem& problem, const Body& body) {
  const Program& program = problem.program();
  ShardAssignment assignment;
  assignment.sources.resize(program.values.size());
  struct Digit {
    size_t index = 0;
    size_t time = 0;
    bool is_source = false;
    size_t option = 0, state = 0;
  };
  std::vector<Digit> digits;
  for (size_t op = 0; op < program.operators.size(); ++op) {
    const auto repeat = program.repeat_of(op);
    const size_t times = repeat ? static_cast<size_t>(program.repeats[*repeat].count) : 1;
    assignment.options.emplace_back(times, 0);
    assignment.states.emplace_back(times, 0);
    for (size_t time = 0; time < times; ++time) digits.push_back({op, time});
  }
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (!problem.is_source(value)) continue;
    const std::vector<size_t> readers = program.readers_of(value);
    const bool is_weight = program.values[value].role == ProgramValue::Role::kWeight;
    assignment.sources[value].resize(is_weight ? assignment.options[readers.front()].size() : 1);
    for (size_t time = 0; time < assignment.sources[value].size(); ++time) digits.push_back({value, time, true});
  }
  while (true) {
    for (const Digit& digit : digits) {
      if (digit.is_source) {
        assignment.sources[digit.index][digit.time] = problem.source_codes(digit.index)[digit.option];
      } else {
        assignment.options[digit.index][digit.time] = digit.option;
        assignment.states[digit.index][digit.time] = digit.state;
      }
    }
    body(assignment);
    size_t place = 0;
    for (; place < digits.size(); ++place) {
      Digit& digit = digits[place];
      if (digit.is_source) {
        if (++digit.option < problem.source_codes(digit.index).size()) break;
      } else {
        if (++digit.state < problem.options(digit.index)[digit.option].states.size()) break;
        digit.state = 0;
        if (++digit.option < problem.options(digit.index).size()) break;
      }
      digit.option = 0;
    }
    if (place == digits.size()) return;
  }
}

}  // namespace weft
