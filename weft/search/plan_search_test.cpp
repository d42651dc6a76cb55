#include "weft/search/plan_search.h"

#include <random>

#include <gtest/gtest.h>

#include "weft/base/units.h"
#include "weft/plan/check.h"
#include "weft/search/enumerate.h"
#include "weft/search/fluid_bound.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

const Scenarios kScenarios(std::string(WEFT_SOURCE_DIR) + "/scenarios");

struct Problem {
  Model model;
  Cluster cluster;
  Workload workload;
  PlanSpace space;
};

Problem tiny_problem(int64_t devices, double memory_gib) {
  Problem problem{.model = *kScenarios.model("tiny-vl"),
                  .cluster = *kScenarios.cluster("local_cpu"),
                  .workload = *kScenarios.workload("vl_sft"),
                  .space = {}};
  problem.cluster.devices_per_node = devices;
  problem.cluster.device.memory_gib = memory_gib;
  problem.workload.global_batch_samples = 8;
  problem.space.cp = {.values = {1}};
  problem.space.mbs = {.values = {1, 2}};
  problem.space.schedules = {ScheduleName::k1f1b};
  for (auto& [kind, encoder] : problem.space.encoders) {
    encoder.allows_fill = encoder.allows_disjoint = encoder.allows_partial = false;
    encoder.mbs_scale = {.values = {1, 2}};
  }
  return problem;
}

/// Tries every placement of a candidate's layers and every number of recomputed ones.
class BruteForce {
 public:
  explicit BruteForce(const Problem& problem)
      : problem_(problem),
        plan_(plan_without_settings(problem.model, problem.cluster, problem.workload)),
        simulator_(*PlanSimulator::create(plan_)) {}

  double best_ms() {
    for (const Candidate& frame : enumerate_frames(plan_, problem_.space)) {
      for (const Candidate& candidate : enumerate_candidates(frame, choices_of(frame, plan_, problem_.space))) {
        fill_plan(candidate, plan_);
        chain_.clear();
        for (size_t m = 0; m < plan_.modules.size(); ++m) {
          const ModulePlan& module = plan_.modules[m];
          if (module.is_encoder() && module.placement != ModulePlacement::kInline) continue;
          const size_t layers = plan_.model.find(module.kind)->layers.size();
          chain_.insert(chain_.end(), layers, m);
        }
        place(0, 0);
      }
    }
    return best_ms_;
  }

 private:
  void place(int64_t stage, size_t first) {
    const int64_t stages = plan_.llm().pp;
    if (stage == stages) {
      if (first == chain_.size()) recompute(0, 0);
      return;
    }
    for (size_t end = first + 1; end <= chain_.size(); ++end) {
      for (const size_t m : {size_t{0}, size_t{1}}) {
        ModulePlan& module = plan_.modules[m];
        if (module.is_encoder() && module.placement != ModulePlacement::kInline) continue;
        module.layers[static_cast<size_t>(stage)][0] =
            std::count(chain_.begin() + static_cast<int64_t>(first), chain_.begin() + static_cast<int64_t>(end), m);
      }
      place(stage + 1, end);
    }
  }

  void recompute(size_t stage, size_t m) {
    if (m == plan_.modules.size()) {
      recompute(stage + 1, 0);
      return;
    }
    if (stage == static_cast<size_t>(plan_.llm().pp)) {
      play();
      return;
    }
    ModulePlan& module = plan_.modules[m];
    if (module.is_encoder() && module.placement != ModulePlacement::kInline) {
      recompute(stage, m + 1);
      return;
    }
    for (int64_t full = 0; full <= module.layers[stage][0]; ++full) {
      for (int64_t selective = 0; selective <= module.layers[stage][0] - full; ++selective) {
        module.recompute[stage][0] = {.full = full, .selective = selective};
        recompute(stage, m + 1);
      }
    }
    module.recompute[stage][0] = {};
  }

  void play() {
    const Schedule schedule = *playable_schedule(plan_);
    const MeanStep step = simulator_.run_mean(plan_, schedule);
    for (const MemorySplit& row : step.memory) {
      if (row.total() > problem_.cluster.device.memory_gib * kGiB) return;
    }
    best_ms_ = std::min(best_ms_, step.step_time_ms);
  }

  const Problem& problem_;
  Plan plan_;
  PlanSimulator simulator_;
  std::vector<size_t> chain_;  // the module of every block in the pipeline
  double best_ms_ = std::numeric_limits<double>::infinity();
};

TEST(PlanSearch, NeverClaimsMoreThanBruteForceShows) {
  int num_feasible = 0;
  for (const int64_t devices : {1, 2, 4}) {
    for (int variant = 0; variant < 24; ++variant) {
      const double gib = std::array{0.28, 0.32, 0.36, 0.4, 0.6, 2.0}[static_cast<size_t>(variant % 6)];
      Problem problem = tiny_problem(devices, gib);
      if (variant / 6 % 2 == 1) problem.space.schedules = {ScheduleName::kZbH1};
      if (variant / 12 == 1) problem.workload.frozen = {ModuleKind::kVision};
      if (variant % 4 == 1) problem.workload.attention = AttentionKernel::kUnfused;
      const double truth = BruteForce(problem).best_ms();
      const Result<PlanSearchResult> result =
          search_plans(problem.model, problem.cluster, problem.workload, problem.space);
      ASSERT_TRUE(result.ok()) << result.error().message();
      const std::string where = std::to_string(devices) + " devices, variant " + std::to_string(variant);
      EXPECT_LE(result->bound_ms, truth * (1 + 1e-9)) << where;
      if (result->best.empty()) {
        EXPECT_EQ(truth, std::numeric_limits<double>::infinity()) << where;
        continue;
      }
      ++num_feasible;
      const double found = result->best.front().step_time_ms;
      EXPECT_GE(found, truth * (1 - 1e-9)) << where;
      EXPECT_TRUE(result->is_optimal) << where << " gap " << result->gap();
      EXPECT_NEAR(found, truth, 1e-9 * truth) << where;
    }
  }
  EXPECT_GE(num_feasible, 30);
}

/// A small cluster of several nodes, on which everything that can be chosen matters.
Problem spread_problem(int64_t nodes, int64_t devices_per_node, double memory_gib) {
  Problem problem = tiny_problem(devices_per_node, memory_gib);
  problem.cluster.nodes = nodes;
  problem.cluster.between_nodes = problem.cluster.within_node;
  problem.cluster.between_nodes.bandwidth_gb_per_s /= 8;
  problem.workload.global_batch_samples = 2 * nodes * devices_per_node;
  problem.space = {};
  problem.space.cp = {.values = {1, 2}};
  problem.space.mbs = {.values = {1, 2}};
  problem.space.schedules = {ScheduleName::k1f1b, ScheduleName::kInterleaved1f1b, ScheduleName::kZbH1,
                             ScheduleName::kGpipe, ScheduleName::kZbV};
  return problem;
}

PlanSearchResult search(const Problem& problem, const PlanSearchOptions& options = {.time_limit_s = 1000}) {
  return *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
}

constexpr SearchBounds kEach[] = {{.work = false}, {.schedule = false}, {.placement = false}};

void expect_bounds_to_change_nothing(const Problem& problem, std::span<const SearchBounds> weaker,
                                     const std::string& where) {
  const PlanSearchResult all = search(problem);
  for (const SearchBounds& bounds : weaker) {
    const PlanSearchResult without = search(problem, {.time_limit_s = 1000, .bounds = bounds});
    const std::string which = where + (bounds.work ? "" : ", without work") +
                              (bounds.schedule ? "" : ", without schedule") +
                              (bounds.placement ? "" : ", without placement");
    EXPECT_EQ(without.counts.considered, all.counts.considered) << which;
    ASSERT_EQ(without.best.size(), all.best.size()) << which;
    if (all.best.empty()) continue;
    const FoundPlan &ours = all.best.front(), &theirs = without.best.front();
    EXPECT_EQ(theirs.step_time_ms, ours.step_time_ms)
        << which << ": " << theirs.candidate.text(theirs.plan) << " instead of " << ours.candidate.text(ours.plan);
  }
}

TEST(PlanSearch, WithoutAnyOneBoundTheAnswerIsTheSame) {
  for (const auto& [nodes, devices, gib] :
       {std::tuple{2, 2, 0.36}, {2, 4, 0.32}, {4, 4, 0.3}, {4, 4, 1.0}, {8, 8, 0.3}, {8, 8, 1.0}}) {
    const std::string where = std::to_string(nodes) + " x " + std::to_string(devices) + ", " + std::to_string(gib);
    expect_bounds_to_change_nothing(spread_problem(nodes, devices, gib), kEach, where);
  }
}

TEST(PlanSearch, WithoutAnyBoundsTheAnswerIsTheSameForEveryKindOfEncoder) {
  const SearchBounds none[] = {{.work = false, .schedule = false, .placement = false}};
  for (const auto& [nodes, devices, gib] : {std::tuple{1, 4, 0.4}, {2, 2, 1.0}, {2, 4, 0.36}}) {
    for (const char* kind : {"inline", "before", "fill", "disjoint", "partial"}) {
      for (const bool is_frozen : {false, true}) {
        Problem problem = spread_problem(nodes, devices, gib);
        const std::string name = kind;
        EncoderSpace& vision = problem.space.encoders[ModuleKind::kVision];
        vision.allows_inline = name == "inline";
        vision.allows_colocated = name == "before" || name == "fill";
        vision.allows_before = name != "fill";
        vision.allows_fill = name == "fill";
        vision.allows_disjoint = name == "disjoint";
        vision.allows_partial = name == "partial";
        if (is_frozen) problem.space.frozen = {ModuleKind::kVision};
        const std::string where = std::to_string(nodes) + " x " + std::to_string(devices) + ", " + kind +
                                  (is_frozen ? ", frozen" : "");
        expect_bounds_to_change_nothing(problem, none, where);
      }
    }
  }
}

TEST(PlanSearch, WhatItFindsIsLegalFitsAndSimulatesToTheSameTime) {
  for (const auto& [model, cluster, workload] : {std::tuple{"qwen2-vl-7b", "dgx_h100", "vl_sft"},
                                                 {"llama3-8b", "dgx_a100_80g", "text_4k"},
                                                 {"qwen2.5-omni-7b", "hgx_h200", "omni_short"}}) {
    PlanSpace space;
    space.schedules = {ScheduleName::k1f1b, ScheduleName::kZbH1};
    space.cp = {.values = {1}};
    Workload load = *kScenarios.workload(workload);
    load.global_batch_samples = 64;
    const Result<PlanSearchResult> result = search_plans(*kScenarios.model(model), *kScenarios.cluster(cluster), load,
                                                         space, {.time_limit_s = 5, .top = 3});
    ASSERT_TRUE(result.ok());
    ASSERT_FALSE(result->best.empty()) << model;
    for (const FoundPlan& found : result->best) {
      EXPECT_TRUE(check_plan(found.plan).empty()) << check_plan(found.plan).front().message;
      const PlanReport report = *simulate_plan(found.plan);
      EXPECT_EQ(report.step_time_ms, found.step_time_ms);
      EXPECT_TRUE(report.fits());
      EXPECT_LE(found.bound_ms, found.step_time_ms * (1 + 1e-9));
    }
    const SearchCounts& c = result->counts;
    EXPECT_EQ(c.considered, c.slower_by_work + c.slower_by_schedule + c.slower_by_placement + c.over_memory + c.evaluated + c.left);
  }
}

TEST(PlanSearch, MoreMemoryAndFasterLinksNeverHurt) {
  Problem problem = tiny_problem(4, 0.4);
  const auto best = [&] {
    return search_plans(problem.model, problem.cluster, problem.workload, problem.space)->best.front().step_time_ms;
  };
  const double base = best();
  problem.cluster.device.memory_gib = 2;
  EXPECT_LE(best(), base * 1.005);
  problem.cluster.device.memory_gib = 0.4;
  problem.cluster.within_node.bandwidth_gb_per_s /= 2;
  EXPECT_GE(best(), base * 0.995);
}

TEST(FluidBound, IsNoLongerThanAnyPlacement) {
  std::mt19937 generator(7);
  const auto draw = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator);
  };
  int num_feasible = 0, num_tight = 0;
  for (int round = 0; round < 400; ++round) {
    const int64_t pp = 1 + static_cast<int64_t>(generator() % 3);
    const int64_t layers = pp + static_cast<int64_t>(generator() % 5);
    FluidChain chain{.pp = pp,
                     .microbatches = 1 + static_cast<int64_t>(generator() % 4),
                     .layers = static_cast<double>(layers),
                     .layer_ms = draw(1, 3),
                     .forward_ms = draw(0.3, 1),
                     .static_bytes = draw(0, 2),
                     .activation_bytes = draw(0.5, 2),
                     .other_ms = draw(0, 2),
                     .first_ms = draw(0, 1),
                     .last_ms = draw(0, 3)};
    chain.recompute_saves_bytes = draw(0.1, 1) * chain.activation_bytes;
    chain.memory_bytes = draw(2, 20);
    chain.last_rank_bytes = draw(0, 2);
    // The least bottleneck over all whole placements, other work going to the rank that it hurts least, as fractions.
    double best = std::numeric_limits<double>::infinity();
    std::vector<int64_t> counts(static_cast<size_t>(pp));
    const std::function<void(size_t, int64_t)> place = [&](size_t rank, int64_t left) {
      if (rank + 1 == counts.size()) {
        counts[rank] = left;
      } else {
        for (counts[rank] = 0; counts[rank] <= left; ++counts[rank]) place(rank + 1, left - counts[rank]);
        return;
      }
      double total = chain.other_ms, longest = 0;
      for (size_t r = 0; r < counts.size(); ++r) {
        const bool is_last = r + 1 == counts.size();
        const auto in_flight = static_cast<double>(std::min(pp - static_cast<int64_t>(r), chain.microbatches));
        const auto n = static_cast<double>(counts[r]);
        double needed = 0;
        while (needed <= n && n * (chain.static_bytes + in_flight * chain.activation_bytes) -
                                      needed * in_flight * chain.recompute_saves_bytes >
                                  chain.memory_bytes - (is_last ? chain.last_rank_bytes : 0))
          ++needed;
        if (needed > n) return;
        const double ms = n * chain.layer_ms + needed * chain.forward_ms + (r == 0 ? chain.first_ms : 0) +
                          (is_last ? chain.last_ms : 0);
        total += ms;
        longest = std::max(longest, ms);
      }
      best = std::min(best, std::max(longest, total / static_cast<double>(pp)));
    };
    place(0, layers);
    const double bound = least_bottleneck_ms(chain);
    EXPECT_LE(bound, best * (1 + 1e-6));
    if (best == std::numeric_limits<double>::infinity()) continue;
    ++num_feasible;
    num_tight += bound > 0.98 * best ? 1 : 0;
  }
  EXPECT_GE(num_feasible, 100);
  EXPECT_GE(num_tight, num_feasible / 2);
}

TEST(PlanSpace, ReadsPinsAndNamesWhatIsWrong) {
  const auto read = [](const std::string& text) {
    return read_plan_space(*parse_document(text, "space.yaml", Syntax::kYaml));
  };
  const PlanSpace space =
      *read("llm: {tp: 8, pp: [1, 2], zero: {at_most: 1}}\nschedule: zb_h1\nencoders: {placement: inline}");
  EXPECT_TRUE(space.tp.contains(8));
  EXPECT_FALSE(space.tp.contains(4));
  EXPECT_TRUE(space.pp.contains(2));
  EXPECT_FALSE(space.zero.contains(2));
  EXPECT_TRUE(space.zero.contains(0));
  EXPECT_EQ(space.schedules, std::vector{ScheduleName::kZbH1});
  EXPECT_FALSE(space.encoders.at(ModuleKind::kVision).allows_colocated);
  EXPECT_NE(read("llm: {tpp: 8}").error().message().find("tpp"), std::string::npos);
  EXPECT_NE(read("llm: {tp: {at_least: 4, at_most: 2}}").error().message().find("llm.tp: allows nothing"),
            std::string::npos);
  EXPECT_NE(read("llm: {tp: []}").error().message().find("llm.tp: is an empty list"), std::string::npos);
  EXPECT_NE(read("schedule: 1f2b").error().message().find("schedule"), std::string::npos);
  EXPECT_NE(read("encoders: {form: filled}").error().message().find("Did you mean 'fill'?"), std::string::npos);
}

}  // namespace
}  // namespace weft
