// What the search for operators' strategies takes on one core, and how good it is:
//   1. all of Llama-3 8B on two axes, without a memory limit (at most 20 ms wanted; 80 layers at most 1.2 times one),
//   2. with a memory limit, and on three axes (at most 1 s wanted, the median gap at most 1 %),
//   3. axis after axis against exact, 180 drawn cases (at most 1.15 times wanted),
//   4. how many Pareto points of time and bytes layers have, where their weights alone may differ.
// Arguments choose among them: whole, memory, recursive, points; all without any.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "bench/must.h"
#include "weft/base/units.h"
#include "weft/meaning/strategy.h"
#include "weft/program/block_program.h"
#include "weft/shard/shard_search.h"
#include "weft/spec/scenario.h"

namespace {

using namespace weft;

Scenarios scenarios() {
  return Scenarios(std::string(WEFT_SOURCE_DIR) + "/scenarios");
}

struct Case {
  std::string model = "llama3-8b";
  std::string cluster = "dgx_h100";
  std::string mesh = "tp=8,dp=8";
  int64_t nodes = 8;
  int64_t samples = 64;
  int64_t rows = 8192;
  int64_t microbatches = 1;

  std::string text() const {
    return model + " " + mesh + " on " + std::to_string(nodes) + " " + cluster + ", " + std::to_string(samples) +
           " x " + std::to_string(rows) + " tokens, " + std::to_string(microbatches) + " microbatches";
  }
};

struct Made {
  Program program;
  ShardSetting setting;

  ShardProblem problem() const {
    return must(ShardProblem::create(program, setting, ShardLimits::none(program, setting.links.num_axes())));
  }
};

Made make(const Case& one, bool is_whole = true) {
  const Model model = must(scenarios().model(one.model));
  const Cluster cluster = must(scenarios().cluster(one.cluster, one.nodes));
  const Module& llm = *model.find(ModuleKind::kLlm);
  const ProgramSizes sizes{.samples = one.samples, .rows = one.rows};
  return {.program = must(is_whole ? program_of(llm, sizes, one.model) : program_of_layers(llm, 0, sizes, one.model)),
          .setting = {.cluster = cluster,
                      .links = must(AxisLinks::create(must(parse_mesh(one.mesh)), cluster)),
                      .microbatches = one.microbatches}};
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

template <typename Body>
double ms_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

/// From the program to the strategy.
double solve_often(const Made& made) {
  std::vector<double> times_ms;
  for (int i = 0; i < 21; ++i) {
    times_ms.push_back(ms_of([&] { must(search_strategy(made.problem(), {})); }));
  }
  return median(times_ms);
}

void print_whole() {
  const Made whole = make({});
  std::printf("whole Llama-3 8B, tp 8 x dp 8: median %.1f ms\n", solve_often(whole));
  Made layers = make({}, false);
  layers.program.repeats.front().count = 1;
  const double one = solve_often(layers);
  layers.program.repeats.front().count = 80;
  const double many = solve_often(layers);
  std::printf("one layer %.2f ms, 80 layers %.2f ms: %.2f times\n", one, many, many / one);
}

void print_memory() {
  std::vector<double> gaps, times_ms;
  int optimal = 0;
  const std::vector<Case> cases{{.samples = 8, .rows = 4096, .microbatches = 8},
                                {.model = "llama3-70b", .samples = 8, .rows = 4096, .microbatches = 8},
                                {.model = "qwen3-30b-a3b", .samples = 16, .rows = 4096, .microbatches = 4},
                                {.model = "qwen2.5-7b", .mesh = "tp=4,dp=16", .samples = 16, .microbatches = 2},
                                {.samples = 64},
                                {.mesh = "tp=4,cp=2,dp=8", .samples = 16, .rows = 4096},
                                {.model = "llama3-70b", .mesh = "tp=8,cp=2,dp=4", .samples = 8, .microbatches = 4},
                                {.model = "qwen3-8b", .mesh = "tp=2,cp=4,dp=8", .samples = 8, .rows = 16384}};
  for (const Case& one : cases) {
    const Made made = make(one);
    Result<ShardSolution> free = search_strategy(made.problem(), {});
    const double free_ms = ms_of([&] { free = search_strategy(made.problem(), {}); });
    if (!free) {
      std::printf("%s: %s\n", one.text().c_str(), free.error().message().c_str());
      continue;
    }
    const ShardProblem problem = made.problem();
    const double least = evaluate(problem, ShardSolver(problem).solve(1e3, all_allowed(problem))->assignment).bytes();
    std::printf("%s: no limit %.1f ms (a step of %.1f ms, %.1f GiB; %.1f GiB are the least)\n", one.text().c_str(),
                free_ms, free->totals.ms(), free->totals.bytes() / kGiB, least / kGiB);
    for (const double share : {0.9, 0.7, 0.5, 0.3, 0.1, 0.02}) {
      const double limit = least + share * (free->totals.bytes() - least);
      std::optional<Result<ShardSolution>> found;
      const double ms = ms_of([&] { found = search_strategy(made.problem(), {.memory_bytes = limit}); });
      if (!*found) {
        std::printf("  %.1f GiB: %.0f ms: %s\n", limit / kGiB, ms, found->error().message().c_str());
        continue;
      }
      const ShardSolution& solution = **found;
      std::printf("  %.1f GiB: %.0f ms, %lld solved, a step of %.1f ms, %s gap %.3f %%\n", limit / kGiB, ms,
                  static_cast<long long>(solution.num_solved), solution.totals.ms(),
                  solution.is_optimal ? "optimal," : "bounded,", 100 * solution.gap());
      gaps.push_back(solution.gap());
      times_ms.push_back(ms);
      optimal += solution.is_optimal;
    }
  }
  std::printf(
      "%zu searches under a limit: median %.0f ms, slowest %.0f ms; %d optimal, median gap %.3f %%, largest "
      "%.3f %%\n",
      gaps.size(), median(times_ms), *std::max_element(times_ms.begin(), times_ms.end()), optimal, 100 * median(gaps),
      100 * *std::max_element(gaps.begin(), gaps.end()));
}

Case draw(std::mt19937_64& random) {
  const auto one_of = [&](const auto& list) { return list[random() % list.size()]; };
  const std::vector<std::string> models{"llama3-8b", "llama3-70b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b"};
  const std::vector<std::string> clusters{"dgx_h100", "dgx_a100_80g", "hgx_h200", "ascend_910b_8"};
  const std::vector<std::pair<std::string, int64_t>> meshes{{"tp=8,dp=2", 2},     {"tp=4,dp=4", 2},  {"tp=8,dp=8", 8},
                                                            {"tp=2,dp=8", 2},     {"tp=4,dp=16", 8}, {"sp=8,dp=4", 4},
                                                            {"tp=4,cp=2,dp=2", 2}};
  const auto& [mesh, nodes] = one_of(meshes);
  return {.model = one_of(models),
          .cluster = one_of(clusters),
          .mesh = mesh,
          .nodes = nodes,
          .samples = int64_t{1} << random() % 7,
          .rows = int64_t{1024} << random() % 5,
          .microbatches = int64_t{1} << random() % 4};
}

void print_recursive() {
  std::mt19937_64 random(1);
  std::vector<double> ratios;
  for (int i = 0; i < 180; ++i) {
    const Case one = draw(random);
    const Made made = make(one, i % 2 == 0);
    const ShardProblem problem = made.problem();
    const Result<ShardSolution> found = search_strategy(problem, {.search = ShardSearch::kRecursive});
    const Result<ShardSolution> exact = search_strategy(problem, {});
    if (!found || !exact) {
      std::printf("  %s: %s\n", one.text().c_str(), (found ? exact : found).error().message().c_str());
      continue;
    }
    ratios.push_back(found->totals.ms() / exact->totals.ms());
    if (ratios.back() > 1.15) std::printf("  %s: %.3f times\n", one.text().c_str(), ratios.back());
  }
  const auto above = std::count_if(ratios.begin(), ratios.end(), [](double ratio) { return ratio > 1.15; });
  std::printf("axis after axis, %zu drawn cases: median %.3f times the optimum, largest %.3f, %ld above 1.15\n",
              ratios.size(), median(ratios), *std::max_element(ratios.begin(), ratios.end()), static_cast<long>(above));
}

struct Point {
  double ms = 0, bytes = 0;
};

/// Sums of one of each, less those that another is better than in both.
std::vector<Point> sums(const std::vector<Point>& a, const std::vector<Point>& b) {
  std::vector<Point> all;
  for (const Point& x : a) {
    for (const Point& y : b) all.push_back({x.ms + y.ms, x.bytes + y.bytes});
  }
  std::sort(all.begin(), all.end(),
            [](const Point& x, const Point& y) { return x.ms != y.ms ? x.ms < y.ms : x.bytes < y.bytes; });
  std::vector<Point> kept;
  for (const Point& point : all) {
    if (kept.empty() || point.bytes < kept.back().bytes) kept.push_back(point);
  }
  return kept;
}

void print_points() {
  const Made made = make({}, false);
  const ShardProblem problem = made.problem();
  const ShardSolution solution = must(search_strategy(problem, {}));
  std::vector<Point> layer{{}};
  for (size_t op = 0; op < problem.program().operators.size(); ++op) {
    std::vector<Point> own;
    for (const StateOption& state : problem.options(op)[solution.assignment.options[op][0]].states)
      own.push_back({state.ms, state.bytes});
    layer = sums(layer, own);
  }
  std::printf("Pareto points of one layer whose operators' choices are fixed: %zu", layer.size());
  std::vector<Point> layers = layer;
  for (int count = 2; count <= 4 && layers.size() < 100'000; count *= 2) {
    layers = sums(layers, layers);
    std::printf(", of %d layers %zu", count, layers.size());
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  const auto is_asked = [&](const char* what) {
    return argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* each) { return std::string(each) == what; });
  };
  if (is_asked("whole")) print_whole();
  if (is_asked("memory")) print_memory();
  if (is_asked("recursive")) print_recursive();
  if (is_asked("points")) print_points();
}
