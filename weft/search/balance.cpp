#include "weft/search/balance.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/schedule/lowering.h"
#include "weft/search/balance_memory.h"
#include "weft/search/chain_search.h"
#include "weft/search/local_search.h"
#include "weft/search/price_mix.h"
#include "weft/search/schedule_graph.h"
#include "weft/search/stage_options.h"
#include "weft/simulate/run_schedule.h"

namespace weft {
namespace {

using Clock = ChainSearch::Clock;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Improvements below this share are not looked for: they would be rounding.
constexpr double kPrecision = 1e-9;

/// Cuts the makespan's lower bound out of the schedule's paths: a search proposes placements that all known paths allow
/// to beat the best so far; each is simulated, and is either better or shows the path that forbids it.
class Solver {
 public:
  Solver(const BalanceCosts& costs, const Schedule& schedule, const StageOptions& options, Clock::time_point start,
         Clock::duration time_limit, double below_ms)
      : costs_(costs),
        options_(options),
        graph_(schedule),
        search_(options),
        end_(start + time_limit),
        deadline_(end_ - time_limit / 5),
        memory_rows_(limited_memory_rows(costs, schedule)),
        mix_(memory_rows_),
        local_search_(schedule, options, memory_rows_, graph_, costs.p2p_ms),
        best_ms_(below_ms) {
    for (const ChainRow& row : memory_rows_) search_.add_row(row);
  }

  /// Looks until nothing better is left, or until the deadline.
  void run() {
    if (!add_first_paths()) {
      is_exhausted_ = true;  // some stage cannot be filled at all
      return;
    }
    if (!memory_rows_.empty()) {
      improve_placement(search_.least_bottleneck());
      improve_mix();
    }
    size_t width = 4;
    while (Clock::now() < deadline_) {
      const ChainSearch::Outcome outcome =
          search_.find_below(best_ms_ * (1 - kPrecision), {.labels_a_block = width, .deadline = deadline_});
      for (const Chain& chain : outcome.found) try_chain(chain);
      if (!outcome.found.empty()) continue;
      if (outcome.is_complete) {
        is_exhausted_ = true;
        break;
      }
      improve_placement(best_);
      improve_mix();
      width *= 4;
      num_kicks_ *= 2;
    }
    if (!is_exhausted_) raise_bound();
  }

  /// Nothing that fits is better than the best; when there is no best, nothing fits.
  bool is_exhausted() const { return is_exhausted_; }
  const Chain& best() const { return best_; }
  double best_ms() const { return best_ms_; }
  double bound_ms() const { return is_exhausted_ ? best_ms_ : std::min(best_ms_, bound_ms_); }
  int64_t num_simulated() const { return num_simulated_ + local_search_.num_simulated(); }
  int64_t num_paths() const { return static_cast<int64_t>(paths_.size()); }

 private:
  std::vector<StageTimes> times_of(const Chain& chain) const {
    std::vector<StageTimes> times;
    for (const size_t option : chain) times.push_back(options_[option].times);
    return times;
  }

  bool fits(const Chain& chain) const {
    return std::all_of(memory_rows_.begin(), memory_rows_.end(), [&](const ChainRow& row) {
      double sum = row.constant;
      for (size_t stage = 0; stage < chain.size(); ++stage) sum += row.value(stage, options_[chain[stage]]);
      return sum <= row.limit * (1 + 1e-12);  // the search added in another order
    });
  }

  double simulate(const std::vector<StageTimes>& times) {
    ++num_simulated_;
    const double makespan = graph_.makespan_ms(times, costs_.p2p_ms);
    CriticalPath path = graph_.critical_path();
    if (std::find(paths_.begin(), paths_.end(), path) == paths_.end()) {
      search_.add_row(row_of(path));
      mix_.add_objective(row_of(path));
      paths_.push_back(std::move(path));
    }
    return makespan;
  }

  void try_chain(const Chain& chain) {
    const double makespan = simulate(times_of(chain));
    if (makespan >= best_ms_ || !fits(chain)) return;
    best_ms_ = makespan;
    best_ = chain;
  }

  ChainRow row_of(const CriticalPath& path) const {
    ChainRow row;
    row.constant = costs_.p2p_ms * path.num_transfers;
    for (const auto& visits : path.visits) {
      ChainRow::Weights weights;
      for (size_t work = 0; work < kNumWorks; ++work) weights.times[work] = visits[work];
      row.stages.push_back(weights);
    }
    return row;
  }

  /// Paths to begin with: of the placement with the smallest bottleneck, and of the same with each stage in turn slowed
  /// down, which finds the paths that go through that stage.
  bool add_first_paths() {
    const Chain chain = search_.least_bottleneck();
    if (chain.empty()) return false;
    try_chain(chain);
    std::vector<StageTimes> times = times_of(chain);
    for (size_t stage = 0; stage < times.size(); ++stage) {
      const StageTimes kept = times[stage];
      for (double& time : times[stage]) time *= 1.25;
      simulate(times);
      times[stage] = kept;
    }
    return true;
  }

  void improve_placement(const Chain& start) {
    if (start.empty()) return;
    const Chain chain = local_search_.improve(start, num_kicks_, deadline_);
    if (!chain.empty()) try_chain(chain);
  }

  /// Adds the best mix of the paths known so far, and of memory, as a row of its own.
  void improve_mix() {
    const bool has_best = best_ms_ < kInfinity;
    const double target = has_best ? best_ms_ * (1 - kPrecision) : 2 * search_.bound();
    search_.add_row(mix_.improve(search_, options_, {.iterations = 150, .target = target, .deadline = deadline_},
                                 [this](const Chain& chain) { try_chain(chain); }));
  }

  /// Halves the gap while it can: a target that a short search shows to be out of reach is a bound.
  void raise_bound() {
    constexpr size_t kWidth = 64;
    constexpr int kMostRetries = 4;
    bound_ms_ = search_.bound();
    if (best_ms_ == kInfinity) return;
    const std::vector<char> alive = search_.alive();
    double high = best_ms_;
    int num_retries = 0;
    while (high - bound_ms_ > 1e-4 * high && Clock::now() < end_) {
      const double target = (bound_ms_ + high) / 2;
      const ChainSearch::Outcome outcome = search_.find_below(target, {.labels_a_block = kWidth, .deadline = end_});
      search_.set_alive(alive);
      for (const Chain& chain : outcome.found) try_chain(chain);
      if (outcome.found.empty() && outcome.is_complete) {
        bound_ms_ = target;
      } else if (outcome.found.empty() || ++num_retries > kMostRetries) {
        high = target;
        num_retries = 0;
      }
      high = std::min(high, best_ms_);
    }
  }

  static std::vector<ChainRow> limited_memory_rows(const BalanceCosts& costs, const Schedule& schedule) {
    // A rank with one stage is judged when its options are made.
    if (!costs.has_memory_limit() || costs.shape.vpp == 1) return {};
    std::vector<ChainRow> rows = memory_rows(schedule);
    for (ChainRow& row : rows) row.limit = with_rounding(costs.memory_gib);
    return rows;
  }

  const BalanceCosts& costs_;
  const StageOptions& options_;
  ScheduleGraph graph_;
  ChainSearch search_;
  Clock::time_point end_;
  Clock::time_point deadline_;  // of the search for better placements; what is left until the end raises the bound
  std::vector<ChainRow> memory_rows_;
  PriceMix mix_;
  LocalSearch local_search_;
  int num_kicks_ = 20;
  std::vector<CriticalPath> paths_;
  Chain best_;
  double best_ms_;
  double bound_ms_ = 0;
  bool is_exhausted_ = false;
  int64_t num_simulated_ = 0;
};

/// A makespan that can be had: everything recomputed, the largest stage as small as it gets. A stage works that long at
/// most, and runs of blocks beyond it need no look at their recomputation. Infinite when that placement does not fit.
Result<double> makespan_with_all_recomputed(const BalanceCosts& costs, const Schedule& schedule,
                                            const std::vector<int32_t>& in_flight) {
  WEFT_TRY(const StageOptions options, StageOptions::make(costs, in_flight, RecomputeOptions::kAll));
  const Chain chain = ChainSearch(options).least_bottleneck();
  if (chain.empty()) return kInfinity;
  for (const double gib : memory_of_ranks(schedule, options, chain)) {
    if (gib > with_rounding(costs.memory_gib)) return kInfinity;
  }
  std::vector<StageTimes> times;
  for (const size_t option : chain) times.push_back(options[option].times);
  return ScheduleGraph(schedule).makespan_ms(times, costs.p2p_ms) * (1 + kPrecision);
}

/// The figures of a placement, from the simulator that plans are priced with.
BalancedPipeline describe(const BalanceCosts& costs, const Schedule& schedule, const StageOptions& options,
                          const Chain& chain) {
  BalancedPipeline balance;
  std::vector<double> forward, input, weight;
  for (size_t stage = 0; stage < chain.size(); ++stage) {
    const StageOption& option = options[chain[stage]];
    balance.stages.push_back({.blocks = blocks_of_kinds(costs, option.first, option.count),
                              .recomputed = options.recomputed_blocks(costs, static_cast<int32_t>(stage), option),
                              .forward_ms = option.times[0],
                              .backward_ms = option.times[1] + option.times[2]});
    forward.push_back(option.times[0]);
    input.push_back(option.times[1]);
    weight.push_back(option.times[2]);
  }
  const auto table = [&](const std::vector<double>& values) {
    return CostTable(schedule.num_stages(), schedule.num_microbatches, values);
  };
  const Result<Schedule> lowered = lower_schedule(schedule);
  WEFT_CHECK(lowered.ok(), "a generated schedule does not lower");
  const ScheduleRun run = run_schedule(*lowered, {.forward_ms = table(forward),
                                                  .backward_input_ms = table(input),
                                                  .backward_weight_ms = table(weight),
                                                  .p2p_ms = CostTable(costs.p2p_ms)});
  balance.makespan_ms = run.makespan_ms;
  balance.bubble_fraction = run.bubble_fraction;
  balance.memory_gib = memory_of_ranks(schedule, options, chain);
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank)
    balance.stages_of_rank.push_back(stages_of_rank(schedule, rank));
  return balance;
}

/// What a solver came to.
struct Solution {
  std::optional<BalancedPipeline> best;
  double bound_ms = 0;
  bool is_exhausted = false;
};

Result<Solution> solve(const BalanceCosts& costs, const Schedule& schedule, const BalanceOptions& options) {
  const auto start = Clock::now();
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s));
  const std::vector<int32_t> in_flight = most_in_flight(schedule);
  double most_ms = options.below_ms;
  if (costs.has_memory_limit()) {
    WEFT_TRY(const double reachable_ms, makespan_with_all_recomputed(costs, schedule, in_flight));
    most_ms = std::min(most_ms, reachable_ms);
  }
  most_ms /= static_cast<double>(costs.shape.microbatches);
  const RecomputeOptions recompute = costs.shape.vpp > 1 ? RecomputeOptions::kPareto : RecomputeOptions::kLeast;
  WEFT_TRY(const StageOptions stage_options, StageOptions::make(costs, in_flight, recompute, most_ms));
  Solver solver(costs, schedule, stage_options, start, limit, options.below_ms);
  solver.run();
  Solution solution{.best = {}, .bound_ms = solver.bound_ms(), .is_exhausted = solver.is_exhausted()};
  if (solver.best().empty()) return solution;
  BalancedPipeline balance = describe(costs, schedule, stage_options, solver.best());
  WEFT_CHECK(std::abs(balance.makespan_ms - solver.best_ms()) <= 1e-9 * balance.makespan_ms,
             "the search found {} ms, the simulator {} ms", solver.best_ms(), balance.makespan_ms);
  balance.is_optimal = solver.is_exhausted() || solver.bound_ms() >= balance.makespan_ms * (1 - kPrecision);
  balance.bound_ms = balance.is_optimal ? balance.makespan_ms : solver.bound_ms();
  balance.num_simulated = solver.num_simulated();
  balance.num_paths = solver.num_paths();
  solution.bound_ms = balance.bound_ms;
  solution.best = std::move(balance);
  return solution;
}

}  // namespace

Result<BalancedPipeline> balance(const BalanceCosts& costs, const BalanceOptions& options) {
  WEFT_TRY(const Schedule schedule, generate_schedule(costs.schedule, costs.shape));
  WEFT_TRY(Solution solution, solve(costs, schedule, options));
  if (solution.best) return *std::move(solution.best);
  const auto limit = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s));
  return explain_no_placement(costs, schedule, {.is_proven = solution.is_exhausted, .deadline = Clock::now() + limit});
}

Result<BalanceBelow> balance_below(const BalanceCosts& costs, const BalanceOptions& options) {
  WEFT_TRY(const Schedule schedule, generate_schedule(costs.schedule, costs.shape));
  WEFT_TRY(Solution solution, solve(costs, schedule, options));
  if (!solution.best && solution.is_exhausted) solution.bound_ms = kInfinity;
  return BalanceBelow{.best = std::move(solution.best), .bound_ms = solution.bound_ms};
}

}  // namespace weft
