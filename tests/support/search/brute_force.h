#pragma once

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/units.h"
#include "weft/cost/apply_profile.h"
#include "weft/meaning/check.h"
#include "weft/meaning/stage_parts.h"
#include "weft/search/enumerate.h"
#include "weft/search/plan_advice.h"
#include "weft/search/plan_search.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/scenario.h"

// Small problems of plan search, and searches that try everything.
namespace weft::search_tests {

inline const Scenarios& test_scenarios() {
  static const Scenarios scenarios(source_tree().string() + "/scenarios");
  return scenarios;
}

/// Two modules of few layers on one node.
inline PlanProblem tiny_problem(int64_t devices, double memory_gib) {
  PlanProblem problem{.model = *test_scenarios().model("tiny-vl"),
                      .cluster = *test_scenarios().cluster("local_cpu"),
                      .workload = *test_scenarios().workload("vl_sft"),
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

/// Tries every placement of a candidate's layers and every number of recomputed ones. Where ranks have several chunks,
/// the placements are those of the space's rule, and nothing is recomputed.
class BruteForce {
 public:
  explicit BruteForce(const PlanProblem& problem, const Profile* profile = nullptr)
      : problem_(problem), plan_(priced_plan(problem, profile)), simulator_(*PlanSimulator::create(plan_, profile)) {}

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
        if (plan_.llm().vpp == 1) {
          place(0, 0);
        } else {
          place_by_rule();
        }
      }
    }
    return best_ms_;
  }

 private:
  static Plan priced_plan(const PlanProblem& problem, const Profile* profile) {
    Plan plan = plan_without_settings(problem.model, problem.cluster, problem.workload);
    if (profile != nullptr) apply_profile(*profile, plan);
    return plan;
  }

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

  /// The same number of blocks on all stages, the rest to ranks in turn, each time to a later chunk first; the last
  /// stage may have up to two fewer.
  void place_by_rule() {
    const int32_t stages = num_stages(plan_);
    const auto blocks = static_cast<int32_t>(chain_.size());
    for (const int32_t fewer : {0, 1, 2}) {
      std::vector<int32_t> counts(static_cast<size_t>(stages), (blocks + fewer) / stages);
      int32_t rest = (blocks + fewer) % stages;
      for (int64_t chunk = plan_.llm().vpp - 1; chunk >= 0; --chunk) {
        for (int64_t rank = 0; rank < plan_.llm().pp && rest > 0; ++rank, --rest) {
          for (int32_t stage = 0; stage < stages; ++stage) {
            const StagePlace at = place_of_stage(plan_, stage);
            if (at.rank == rank && at.chunk == chunk) ++counts[static_cast<size_t>(stage)];
          }
        }
      }
      counts.back() -= fewer;
      if (*std::min_element(counts.begin(), counts.end()) < 1) continue;
      auto block = chain_.begin();
      for (int32_t stage = 0; stage < stages; ++stage) {
        const StagePlace at = place_of_stage(plan_, stage);
        const auto end = block + counts[static_cast<size_t>(stage)];
        for (size_t m = 0; m < plan_.modules.size(); ++m) {
          ModulePlan& module = plan_.modules[m];
          if (module.is_encoder() && module.placement != ModulePlacement::kInline) continue;
          module.layers[static_cast<size_t>(at.rank)][static_cast<size_t>(at.chunk)] = std::count(block, end, m);
        }
        block = end;
      }
      play();
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
      const int64_t most = problem_.space.recompute.allows_selective ? module.layers[stage][0] - full : 0;
      for (int64_t selective = 0; selective <= most; ++selective) {
        module.recompute[stage][0] = RecomputeCounts{.full = full, .selective = selective};
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

  const PlanProblem& problem_;
  Plan plan_;
  PlanSimulator simulator_;
  std::vector<size_t> chain_;  // the module of every block in the pipeline
  double best_ms_ = std::numeric_limits<double>::infinity();
};

inline PlanSearchResult search(const PlanProblem& problem, const PlanSearchOptions& options = {.time_limit_s = 1000}) {
  return *search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
}

/// Problems at random: few layers, so that every candidate can be tried; links from slow to fast; memory from too
/// little to plenty; few microbatches.
class RandomProblems {
 public:
  /// `has_own_settings`: encoders beside the pipeline have more settings of their own than usual.
  explicit RandomProblems(uint64_t seed, bool has_own_settings = false)
      : random_(seed), has_own_settings_(has_own_settings) {}

  PlanProblem next() {
    const std::string model =
        pick<std::string>({"tiny-vl", "qwen2-vl-2b", "qwen2.5-vl-3b", "qwen2.5-omni-7b", "llama3-8b", "qwen3-30b-a3b"});
    const bool has_audio = model == "qwen2.5-omni-7b", is_text = model == "llama3-8b" || model == "qwen3-30b-a3b";
    PlanProblem problem{.model = *test_scenarios().model(model),
                        .cluster = *test_scenarios().cluster(model == "tiny-vl" ? "local_cpu" : "dgx_h100"),
                        .workload = *test_scenarios().workload(has_audio ? "omni_short"
                                                               : is_text ? "text_4k"
                                                                         : "vl_sft"),
                        .space = {}};
    for (Module& module : problem.model.modules)
      module.layers.resize(std::min<size_t>(module.layers.size(), pick<size_t>({2, 3, 4, 6})));
    Cluster& cluster = problem.cluster;
    cluster.nodes = pick<int64_t>({1, 1, 2, 3});
    cluster.devices_per_node = pick<int64_t>({1, 2, 4});
    if (cluster.nodes > 1 && model == "tiny-vl") cluster.between_nodes = cluster.within_node;
    const double latency = pick<double>({1, 1, 20, 100}), bandwidth = pick<double>({1, 1, 0.1, 0.02, 4});
    for (Link* link : {&cluster.within_node, &cluster.between_nodes}) {
      link->latency_us *= latency;
      link->bandwidth_gb_per_s *= bandwidth;
    }
    cluster.device.memory_gib *= pick<double>({0.14, 0.17, 0.2, 0.3, 0.5, 1, 10});
    cluster.device.reserved_memory_gib = std::min(cluster.device.reserved_memory_gib, cluster.device.memory_gib / 4);
    problem.workload.global_batch_samples = cluster.num_devices() * pick<int64_t>({1, 2, 3});
    if (pick({false, false, true})) problem.workload.attention = AttentionKernel::kUnfused;
    PlanSpace& space = problem.space;
    space.cp = {.values = {pick<int64_t>({1, 1, 2})}};
    space.mbs = {.values = {1, 2}};
    space.schedules = {pick({ScheduleName::k1f1b, ScheduleName::kZbH1, ScheduleName::kInterleaved1f1b,
                             ScheduleName::kGpipe, ScheduleName::kZbV}),
                       ScheduleName::k1f1b};
    if (space.schedules[0] == space.schedules[1]) space.schedules.pop_back();
    if (!is_text && pick({false, false, true})) space.frozen = {ModuleKind::kVision};
    for (auto& [kind, encoder] : space.encoders) {
      encoder.allows_inline = pick({true, false});
      encoder.allows_disjoint = pick({true, false, false});
      encoder.allows_partial = pick({true, false});
      encoder.allows_fill = pick({true, false});
      encoder.mbs_scale = {.values = {pick<int64_t>({1, 2})}};
      if (has_own_settings_) draw_own_settings(encoder);
    }
    return problem;
  }

 private:
  void draw_own_settings(EncoderSpace& encoder) {
    encoder.allows_on_demand = pick({true, false});
    encoder.allows_before = pick({true, !encoder.allows_on_demand});
    encoder.cp = {.values = {1, pick<int64_t>({2, 4})}};
    encoder.mbs_parts = {.values = {1, pick<int64_t>({1, 2})}};
    encoder.sequence_parallel = pick<std::optional<bool>>({std::nullopt, true, false});
    if (pick({true, false})) encoder.zero = Allowed{.values = {pick<int64_t>({0, 1}), pick<int64_t>({2, 3})}};
  }

  template <typename T>
  T pick(std::initializer_list<T> from) {
    return from.begin()[random_() % from.size()];
  }
  std::mt19937_64 random_;
  bool has_own_settings_;
};

/// Whether the space has the candidate.
inline bool contains(const PlanProblem& problem, const Candidate& candidate) {
  Workload workload = problem.workload;
  if (problem.space.frozen) workload.frozen = *problem.space.frozen;
  const Plan plan = plan_without_settings(problem.model, problem.cluster, workload);
  for (const Candidate& frame : enumerate_frames(plan, problem.space)) {
    const std::vector<Candidate> all = enumerate_candidates(frame, choices_of(frame, plan, problem.space));
    if (std::find(all.begin(), all.end(), candidate) != all.end()) return true;
  }
  return false;
}

/// Compares with a search that drops nothing.
inline void expect_nothing_to_be_dropped(const PlanProblem& problem, const std::string& where, int& num_compared) {
  const PlanSearchResult all = search(problem, {.time_limit_s = 1000, .top = 5});
  if (all.counts.considered > 3000) return;
  ++num_compared;
  const SearchBounds none{.work = false, .schedule = false, .placement = false};
  const PlanSearchResult oracle = search(problem, {.time_limit_s = 1000, .bounds = none});
  ASSERT_EQ(all.best.empty(), oracle.best.empty()) << where;
  if (all.best.empty()) return;
  EXPECT_NEAR(all.best.front().step_time_ms, oracle.best.front().step_time_ms, 1e-8 * oracle.best.front().step_time_ms)
      << where << ": " << oracle.best.front().candidate.text(oracle.best.front().plan) << " instead of "
      << all.best.front().candidate.text(all.best.front().plan);
  EXPECT_LE(all.bound_ms, oracle.best.front().step_time_ms * (1 + 1e-8)) << where;
  for (const FoundPlan& found : all.best) {
    EXPECT_TRUE(contains(problem, found.candidate)) << where << ": " << found.candidate.text(found.plan);
    EXPECT_TRUE(check_plan(found.plan, PlanUse::kPrice).empty())
        << where << ": " << check_plan(found.plan, PlanUse::kPrice).front().message;
  }
}

}  // namespace weft::search_tests
