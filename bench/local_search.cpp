// Random local search that tries to beat `weft plan --fastest`, with the same prices, batches and memory margin:
//   weft_local_search --list
//   weft_local_search --problem NAME [--minutes M] [--seed S] [--time-limit S] [--batches N] [--plain] [--out FILE]
// Minutes are of the processor, so that other work on the machine takes nothing from the walk.
// --plain: the search is not improved beyond its space. It starts from the plan that the search gives and from random
// candidates, and changes everything that training obeys.
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>

#include <fmt/format.h>

#include "bench/local_moves.h"
#include "bench/local_problems.h"
#include "weft/base/file.h"
#include "weft/plan/diff.h"
#include "weft/plan/plan_json.h"
#include "weft/search/enumerate.h"
#include "weft/search/plan_pricer.h"
#include "weft/search/plan_search.h"
#include "weft/spec/scenario.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr double kMemoryMargin = 0.08;
/// A walk may leave its best plan by so much, and ends after so many changes that brought nothing.
constexpr double kSlack = 1.004;
constexpr int kMostIdle = 600;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double processor_seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

struct Options {
  std::string problem, out;
  double minutes = 10;
  double search_s = 20;  // of the search that is to be beaten
  uint64_t seed = 1;
  int64_t batches = kEnoughBatches;
  bool is_plain = false;  // the search stays in its space
};

struct State {
  Plan plan;
  PlanPrice price;
};

/// Walks from plan to plan, by one to three changes at a time.
class Walker {
 public:
  Walker(const Plan& problem, State start, PlanPricer& pricer, const Options& options)
      : problem_(problem),
        start_(start),
        best_(std::move(start)),
        pricer_(pricer),
        moves_(options.seed),
        frames_(enumerate_frames(problem, space_)),
        limit_s_(options.minutes * 60) {}

  const State& run() {
    for (int walk = 0; !is_over(); ++walk) {
      const int64_t drawn = walk == 0 ? 0 : moves_.below(10);
      if (drawn < 4) {
        walk_from(best_, "the best");
      } else if (drawn < 6) {
        walk_from(start_, "the plan");
      } else if (std::optional<State> random = random_state()) {
        walk_from(*std::move(random), "a random plan");
      }
    }
    return best_;
  }

  const std::map<std::string, int64_t>& gains() const { return gains_; }

 private:
  bool is_over() const { return processor_seconds_since(begin_) > limit_s_; }

  void walk_from(State state, const char* where) {
    State walk_best = state;
    int idle = 0;
    while (idle < kMostIdle && !is_over()) {
      Plan next = state.plan;
      std::string names;
      for (int64_t count = 1 + (moves_.one_in(2) ? moves_.below(3) : 0); count > 0; --count) {
        const std::string name = moves_.change(next);
        if (!name.empty()) names += (names.empty() ? "" : " + ") + name;
      }
      ++idle;
      if (names.empty()) continue;
      const std::optional<PlanPrice> price = pricer_.price(next, &walk_best.price, kSlack);
      if (!price) continue;
      state = {.plan = std::move(next), .price = *price};
      if (price->step_ms >= walk_best.price.step_ms * (1 - 1e-7)) continue;
      walk_best = state;
      idle = 0;
      if (price->step_ms >= best_.price.step_ms) continue;
      best_ = state;
      ++gains_[names];
      fmt::print(stderr, "{:6.1f} s {:10.1f} ms {:5.2f} % from {}: {}\n", processor_seconds_since(begin_),
                 price->step_ms, 100 * (1 - price->step_ms / start_.price.step_ms), where, names);
    }
  }

  /// A candidate of the search's own space, with as much recomputation as it needs to fit.
  std::optional<State> random_state() {
    for (int tries = 0; tries < 200 && !is_over(); ++tries) {
      const Candidate& frame = moves_.pick(frames_);
      const FrameChoices choices = choices_of(frame, problem_, space_);
      if (choices.size() == 0) continue;
      Candidate c = frame;
      for (size_t e = 0; e < kMostEncoders; ++e) c.encoders[e] = moves_.pick(choices.encoders[e]);
      moves_.pick(choices.schedules).apply(c);
      moves_.pick(choices.zeros).apply(c);
      State state{.plan = problem_};
      fill_plan(c, state.plan);
      state.plan.batches = start_.plan.batches;
      if (!refit(state.plan) || !spread_layers(state.plan)) continue;
      for (const bool recomputes : {false, true}) {
        if (recomputes) recompute_all(state.plan);
        const std::optional<PlanPrice> price = pricer_.price(state.plan, &start_.price, 2);
        if (!price) continue;
        state.price = *price;
        return state;
      }
    }
    return std::nullopt;
  }

  static void recompute_all(Plan& plan) {
    for (ModulePlan& module : plan.modules) {
      module.recompute.clear();
      for (const auto& row : module.layers) {
        auto& chunks = module.recompute.emplace_back();
        for (const int64_t count : row) chunks.emplace_back(RecomputeCounts{.full = count});
      }
    }
  }

  const Plan& problem_;
  State start_, best_;
  PlanPricer& pricer_;
  PlanSpace space_;
  LocalMoves moves_;
  std::vector<Candidate> frames_;
  double limit_s_;
  std::clock_t begin_ = std::clock();
  std::map<std::string, int64_t> gains_;
};

void print_differences(const Plan& start, const Plan& best) {
  for (const Difference& difference : diff_plans(start, best)) {
    if (difference.field.find("actions") != std::string::npos || difference.field.find("predicted") == 0) continue;
    const auto shortened = [](std::string text) { return text.size() > 200 ? text.substr(0, 200) + "…" : text; };
    fmt::print("  {}: {} -> {}\n", difference.field, shortened(difference.before), shortened(difference.after));
  }
}

Result<int> compare(const Options& options) {
  const LocalProblem* given = nullptr;
  for (const LocalProblem& problem : local_problems()) {
    if (problem.name == options.problem) given = &problem;
  }
  if (given == nullptr) return Error{.source = "--problem", .problem = "names no problem; --list has them"};
  const std::string root = WEFT_SOURCE_DIR;
  const Scenarios scenarios(root + "/scenarios");
  WEFT_TRY(const Model model, scenarios.model(given->model));
  WEFT_TRY(const Cluster cluster, scenarios.cluster(given->cluster, given->nodes));
  const bool is_file = given->workload.find('/') != std::string::npos;
  WEFT_TRY(Workload workload, scenarios.workload(is_file ? root + "/" + given->workload : given->workload));
  workload.global_batch_samples = given->samples;

  const auto begin = Clock::now();
  const std::clock_t cpu_begin = std::clock();
  WEFT_TRY(PlanSearchResult result, search_plans(model, cluster, workload, PlanSpace{},
                                                 {.time_limit_s = options.search_s,
                                                  .memory_margin = kMemoryMargin,
                                                  .batches = options.batches,
                                                  .improves = !options.is_plain}));
  if (result.best.empty()) return Error{.source = given->name, .problem = "has no plan"};
  FoundPlan& found = *result.chosen;
  fmt::print("{}: {:.1f} ms in {:.1f} s ({:.1f} s of CPU), {}, {} batches, improved by {:.2f} %: {}\n", given->name,
             found.step_time_ms, seconds_since(begin), processor_seconds_since(cpu_begin),
             result.is_optimal ? "proven" : "not proven", result.batches, 100 * result.improved_by,
             found.candidate.text(found.plan));

  Plan problem = plan_without_settings(model, cluster, workload);
  problem.cluster.device.memory_gib *= 1 - kMemoryMargin;
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(problem));
  DrawnSamples samples(problem);
  PlanPricer pricer(std::move(simulator), samples, result.batches);
  State start{.plan = found.plan};
  start.plan.cluster = problem.cluster;
  const std::optional<PlanPrice> price = pricer.price(start.plan);
  if (!price) return Error{.source = given->name, .problem = "the plan that was found cannot be priced"};
  if (std::abs(price->step_ms / found.step_time_ms - 1) > 1e-6) fmt::print("priced anew: {:.1f} ms\n", price->step_ms);
  start.price = *price;

  Walker walker(problem, start, pricer, options);
  const State& best = walker.run();
  fmt::print("{}: start {:.1f} ms, best {:.1f} ms, gain {:.2f} %, {} plans priced\n", given->name, start.price.step_ms,
             best.price.step_ms, 100 * (1 - best.price.step_ms / start.price.step_ms), pricer.num_priced());
  print_differences(start.plan, best.plan);
  for (const auto& [names, count] : walker.gains()) fmt::print("  gained {} times by {}\n", count, names);
  if (!options.out.empty()) {
    Plan plan = best.plan;
    plan.cluster = cluster;
    if (auto error = write_file(options.out, plan_to_text(plan))) return *error;
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  Options options;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--list") {
      for (const LocalProblem& problem : local_problems())
        fmt::print("{}: {} on {} nodes of {}, {}, {} samples\n", problem.name, problem.model, problem.nodes,
                   problem.cluster, problem.workload, problem.samples);
      return 0;
    }
    if (words[i] == "--problem" && has_value) {
      options.problem = words[++i];
    } else if (words[i] == "--minutes" && has_value) {
      options.minutes = std::stod(words[++i]);
    } else if (words[i] == "--time-limit" && has_value) {
      options.search_s = std::stod(words[++i]);
    } else if (words[i] == "--plain") {
      options.is_plain = true;
    } else if (words[i] == "--batches" && has_value) {
      options.batches = std::stoll(words[++i]);
    } else if (words[i] == "--seed" && has_value) {
      options.seed = std::stoull(words[++i]);
    } else if (words[i] == "--out" && has_value) {
      options.out = words[++i];
    } else {
      fmt::print(stderr,
                 "weft_local_search --list | --problem NAME [--minutes M] [--seed S] [--time-limit S] [--batches N] "
                 "[--plain] [--out FILE]\n");
      return 2;
    }
  }
  const Result<int> status = compare(options);
  if (!status) fmt::print(stderr, "{}\n", status.error().message());
  return status ? *status : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run({argv + 1, argv + argc});
}
