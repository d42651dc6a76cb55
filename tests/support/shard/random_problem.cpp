#include "tests/support/shard/random_problem.h"

#include <algorithm>

#include "weft/program/program_builder.h"

namespace weft {

Cluster small_cluster(int64_t nodes, int64_t devices_per_node) {
  Cluster cluster;
  cluster.name = "small";
  cluster.nodes = nodes;
  cluster.devices_per_node = devices_per_node;
  cluster.device = {.name = "device",
                    .memory_gib = 16,
                    .reserved_memory_gib = 1,
                    .memory_bandwidth_gb_per_s = 500,
                    .matrix_tflops = {{Precision::kBf16, 50}}};
  cluster.within_node = {.bandwidth_gb_per_s = 100, .latency_us = 2};
  cluster.between_nodes = {.bandwidth_gb_per_s = 10, .latency_us = 5};
  cluster.cards_per_node = 1;
  return cluster;
}

Program random_program(std::mt19937_64& random, bool has_repeat) {
  const auto below = [&](uint64_t count) { return random() % count; };
  ProgramBuilder code("random");
  code.dim("b", 1 << below(5));
  code.dim("s", 64 << below(4));
  code.dim("h", 128 << below(4));
  code.dim("f", 256 << below(4));
  size_t x = code.input("x", "b s h");
  if (has_repeat) {
    if (below(2) == 0) x = code.norm("first", "b s h, h -> b s h", {x, code.weight("first.w", "h")});
    code.begin_repeat(2 + static_cast<int64_t>(below(2)), x);
  }
  // Values by their last dim.
  std::vector<size_t> wide, narrow{x};
  std::optional<size_t> shared;
  const size_t count = has_repeat ? 2 + below(2) : 2 + below(7);
  for (size_t i = 0; i < count && code.program().operators.size() < 8; ++i) {
    const std::string name = "op" + std::to_string(i);
    const size_t n = narrow[below(narrow.size())];
    switch (below(wide.empty() ? 4 : 8)) {
      case 0:
        // Now and then a weight has several readers.
        if (!shared || below(3) > 0) shared = code.weight(name + ".w", "f h");
        wide.push_back(code.einsum(name, "b s h, f h -> b s f", {n, *shared}));
        break;
      case 1:
        narrow.push_back(code.norm(name, "b s h, h -> b s h", {n, code.weight(name + ".w", "h")}));
        break;
      case 2:
        narrow.push_back(code.sum_of(name, "b s h, b s h -> b s h", {n, narrow[below(narrow.size())]}));
        break;
      case 3:
        narrow.push_back(code.add(OperatorKind::kScale, name, "b s h -> b s h", {n}));
        break;
      case 4:
      case 5:
        narrow.push_back(
            code.einsum(name, "b s f, h f -> b s h", {wide[below(wide.size())], code.weight(name + ".w", "h f")}));
        break;
      case 6:
        wide.push_back(code.elementwise(name, "b s f -> b s f", {wide[below(wide.size())]}));
        break;
      default:
        wide.push_back(code.add(OperatorKind::kMultiply, name, "b s f, b s f -> b s f",
                                {wide[below(wide.size())], wide[below(wide.size())]}));
    }
  }
  if (has_repeat) {
    const size_t last = code.add(OperatorKind::kScale, "last", "b s h -> b s h", {narrow.back()});
    code.end_repeat(last);
    code.einsum("after", "b s h, f h -> b s f", {last, code.weight("after.w", "f h")});
  }
  return *code.finish();
}

double num_strategies(const ShardProblem& problem) {
  const Program& program = problem.program();
  double product = 1;
  for (size_t op = 0; op < program.operators.size(); ++op) {
    double own = 0;
    for (const OperatorOption& option : problem.options(op)) own += static_cast<double>(option.states.size());
    const auto repeat = program.repeat_of(op);
    for (int64_t time = repeat ? program.repeats[*repeat].count : 1; time > 0; --time) product *= own;
  }
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (!problem.is_source(value)) continue;
    const std::vector<size_t> readers = program.readers_of(value);
    const auto repeat = readers.empty() ? std::nullopt : program.repeat_of(readers.front());
    const bool is_weight = program.values[value].role == ProgramValue::Role::kWeight;
    for (int64_t time = repeat && is_weight ? program.repeats[*repeat].count : 1; time > 0; --time)
      product *= static_cast<double>(problem.source_codes(value).size());
  }
  return product;
}

ShardProblem random_problem(std::mt19937_64& random, double most_strategies, bool has_repeat) {
  const std::vector<std::vector<Axis>> meshes{{{"tp", 2}, {"dp", 2}}, {{"tp", 4}, {"dp", 2}}, {{"tp", 2}, {"dp", 4}}};
  const std::vector<Axis>& axes = meshes[random() % meshes.size()];
  const Cluster cluster = small_cluster(axes[1].size, axes[0].size);
  const ShardSetting setting{.cluster = cluster,
                             .links = *AxisLinks::create(axes, cluster),
                             .precision = Precision::kBf16,
                             .attention = AttentionKernel::kFused,
                             .microbatches = 1 + static_cast<int64_t>(random() % 3)};
  const Program program = random_program(random, has_repeat);
  ShardLimits limits = ShardLimits::none(program, 2);
  for (size_t value = 0; value < program.values.size(); ++value) {
    for (ZeroRange& range : limits.stages[value]) {
      const int64_t least = static_cast<int64_t>(random() % 3);
      range = {least, least + static_cast<int64_t>(random() % 2)};
    }
    if (program.values[value].role == ProgramValue::Role::kInput && random() % 2 == 0)
      limits.inputs[value][random() % 2] = AxisState::shard(random() % 3);
  }
  ShardProblem problem = *ShardProblem::create(program, setting, limits);
  while (num_strategies(problem) > most_strategies) {
    // One more pin, to a choice that is possible there.
    const size_t op = random() % program.operators.size();
    const size_t axis = random() % 2;
    const auto& options = problem.options(op);
    limits.pins[op][axis] = options[random() % options.size()].choices[axis];
    for (size_t value = 0; value < program.values.size(); ++value) {
      if (random() % 4 == 0 && program.values[value].role == ProgramValue::Role::kWeight)
        limits.stages[value][axis].most = limits.stages[value][axis].least;
      if (random() % 8 == 0 && problem.is_source(value) && !limits.inputs[value][axis])
        limits.inputs[value][axis] = AxisState::shard(random() % program.values[value].dims.size());
    }
    Result<ShardProblem> next = ShardProblem::create(program, setting, limits);
    if (next) {
      problem = *std::move(next);
    } else {
      limits.pins[op][axis].reset();
    }
  }
  return problem;
}

}  // namespace weft
