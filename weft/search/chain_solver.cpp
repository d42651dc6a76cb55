#include "weft/search/chain_solver.h"

#include <algorithm>

#include "weft/search/local_search.h"
#include "weft/search/precision.h"
#include "weft/search/price_mix.h"

namespace weft {
namespace {

using Clock = ChainSearch::Clock;
/// Paths that a shape remembers besides the plain ones.
constexpr size_t kMostPaths = 48;

/// Cuts the makespan's lower bound out of the schedule's paths: a search proposes placements that all known paths allow
/// to beat the best so far; each is simulated, and is either better or shows the path that forbids it.
class Solver {
 public:
  Solver(SolverShape& shape, const StageOptions& options, std::span<const double> memory_gib, double below_ms,
         const SolverEffort& effort)
      : shape_(shape),
        options_(options),
        effort_(effort),
        search_(options),
        end_(effort.start + effort.time_limit, effort.stop),
        deadline_(effort.start + effort.time_limit - effort.time_limit / 5, effort.stop),
        memory_rows_(limited_memory_rows(shape, memory_gib)),
        mix_(memory_rows_),
        local_search_(shape.schedule, options, memory_rows_, shape.graph),
        best_ms_(below_ms) {
    for (const ChainRow& row : memory_rows_) search_.add_row(row);
    for (const CriticalPath& path : shape.paths) add_path(path);
  }

  /// Looks until nothing better is left, or until the deadline.
  void run() {
    is_too_large_ = !search_.has_room();
    if (is_too_large_) return;
    if (options_.size() == 0 || !try_first_chain()) {
      is_exhausted_ = true;  // some stage cannot be filled at all
      return;
    }
    if (!memory_rows_.empty()) {
      improve_placement(search_.least_bottleneck());
      improve_mix();
    }
    size_t width = 4;
    for (int walk = 0;
         !deadline_.is_over() && search_.has_room(1) && width <= effort_.most_labels && walk < effort_.most_walks;
         ++walk) {
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
    if (is_exhausted_) return;
    if (effort_.most_walks < std::numeric_limits<int>::max()) {
      bound_ms_ = std::max(search_.known_bound(), search_.bound(end_));
    } else {
      raise_bound();
    }
  }

  /// Nothing that fits is better than the best; when there is no best, nothing fits.
  bool is_exhausted() const { return is_exhausted_; }
  bool is_too_large() const { return is_too_large_; }
  const Chain& best() const { return best_; }
  double best_ms() const { return best_ms_; }
  double bound_ms() const { return is_exhausted_ ? best_ms_ : std::min(best_ms_, bound_ms_); }
  int64_t num_simulated() const { return num_simulated_ + local_search_.num_simulated(); }

 private:
  std::vector<StageTimes> times_of(const Chain& chain) const {
    std::vector<StageTimes> times;
    for (const size_t option : chain) times.push_back(options_[option].times());
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
    const double makespan = shape_.graph.makespan_ms(times);
    CriticalPath path = shape_.graph.critical_path();
    if (std::find(shape_.paths.begin(), shape_.paths.end(), path) == shape_.paths.end()) {
      add_path(path);
      shape_.paths.push_back(std::move(path));
    }
    return makespan;
  }

  /// A path that there is no room for bounds nothing.
  void add_path(const CriticalPath& path) {
    if (search_.has_room(1)) search_.add_row(row_of(path));
  }

  void try_chain(const Chain& chain) {
    const double makespan = simulate(times_of(chain));
    if (makespan >= best_ms_ || !fits(chain)) return;
    best_ms_ = makespan;
    best_ = chain;
  }

  ChainRow row_of(const CriticalPath& path) const {
    ChainRow row{.stages = std::vector<StageFigures>(path.visits.size(), StageFigures{})};
    for (size_t stage = 0; stage < path.visits.size(); ++stage)
      std::copy(path.visits[stage].begin(), path.visits[stage].end(), row.stages[stage].begin());
    return row;
  }

  /// The placement with the smallest bottleneck, unless the paths known so far exclude everything.
  bool try_first_chain() {
    const Chain chain = search_.least_bottleneck();
    if (chain.empty()) return false;
    if (search_.bound(end_) < best_ms_) try_chain(chain);
    return true;
  }

  void improve_placement(const Chain& start) {
    if (start.empty()) return;
    const Chain chain = local_search_.improve(
        start, {.num_kicks = num_kicks_, .most_simulated = effort_.most_local, .deadline = deadline_});
    if (!chain.empty()) try_chain(chain);
  }

  /// Adds the best mix of the paths known so far, and of memory, as a row of its own.
  void improve_mix() {
    if (!search_.has_room(1)) return;
    // Most chains are settled without a mix.
    for (; num_mixed_ < shape_.paths.size(); ++num_mixed_) mix_.add_objective(row_of(shape_.paths[num_mixed_]));
    const bool has_best = best_ms_ < kInfinity;
    const double target = has_best ? best_ms_ * (1 - kPrecision) : 2 * search_.bound(deadline_);
    search_.add_row(mix_.improve(search_, options_, {.iterations = 150, .target = target, .deadline = deadline_},
                                 [this](const Chain& chain) { try_chain(chain); }));
  }

  /// Halves the gap while it can: a target that a short search shows to be out of reach is a bound.
  void raise_bound() {
    constexpr size_t kWidth = 64;
    constexpr int kMostRetries = 4;
    bound_ms_ = search_.known_bound();
    if (end_.is_over()) return;
    bound_ms_ = std::max(bound_ms_, search_.bound(end_));
    if (best_ms_ == kInfinity) return;
    const std::vector<char> alive = search_.alive();
    double high = best_ms_;
    int num_retries = 0;
    while (high - bound_ms_ > 1e-4 * high && !end_.is_over()) {
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

  static std::vector<ChainRow> limited_memory_rows(const SolverShape& shape, std::span<const double> memory_gib) {
    const bool shares_ranks = shape.schedule.num_stages() > static_cast<int32_t>(shape.moments.size());
    if (memory_gib.empty() || !shares_ranks) return {};
    return memory_rows(shape.schedule, shape.moments, memory_gib);
  }

  SolverShape& shape_;
  const StageOptions& options_;
  SolverEffort effort_;
  ChainSearch search_;
  Deadline end_;
  Deadline deadline_;  // of the search for better placements; what is left until the end raises the bound
  std::vector<ChainRow> memory_rows_;
  PriceMix mix_;
  size_t num_mixed_ = 0;  // of the shape's paths, those that the mix has
  LocalSearch local_search_;
  int num_kicks_ = 20;
  Chain best_;
  double best_ms_;
  double bound_ms_ = 0;
  bool is_exhausted_ = false;
  bool is_too_large_ = false;
  int64_t num_simulated_ = 0;
};

}  // namespace

namespace {

/// A game of moments against chunks: the more a chunk was held so far, the less a layer wants to lie there, and the
/// next moment is the one that such a layer minds most.
double held_anyway(const std::vector<MemoryMoment>& moments) {
  constexpr int kRounds = 60;
  if (moments.empty()) return 0;
  std::vector<double> held(moments.front().held.size(), 0);
  double best = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const size_t least = static_cast<size_t>(std::min_element(held.begin(), held.end()) - held.begin());
    const auto most =
        std::max_element(moments.begin(), moments.end(),
                         [&](const MemoryMoment& a, const MemoryMoment& b) { return a.held[least] < b.held[least]; });
    for (size_t chunk = 0; chunk < held.size(); ++chunk) held[chunk] += most->held[chunk];
    best = std::max(best, *std::min_element(held.begin(), held.end()) / round);
  }
  return best;
}

std::vector<double> held_anyway(const MomentsOfRanks& moments) {
  std::vector<double> held;
  for (const auto& of_rank : moments) held.push_back(held_anyway(of_rank));
  return held;
}

}  // namespace

SolverShape::SolverShape(Schedule of)
    : schedule(std::move(of)),
      graph(schedule),
      moments(moments_of_ranks(schedule)),
      in_flight(most_in_flight(schedule, moments)),
      held_anyway(weft::held_anyway(moments)),
      paths(plain_paths(schedule)),
      mix(mix_of(paths)) {}

SolvedChain solve_chain(SolverShape& shape, const StageOptions& options, std::span<const double> memory_gib,
                        double below_ms, const SolverEffort& effort) {
  const auto num_plain = static_cast<std::ptrdiff_t>(shape.schedule.num_stages());
  if (shape.paths.size() > static_cast<size_t>(num_plain) + kMostPaths)
    shape.paths.erase(shape.paths.begin() + num_plain, shape.paths.end() - static_cast<std::ptrdiff_t>(kMostPaths / 2));
  Solver solver(shape, options, memory_gib, below_ms, effort);
  solver.run();
  SolvedChain solved{.best = solver.best(),
                     .best_ms = solver.best().empty() ? kInfinity : solver.best_ms(),
                     .bound_ms = solver.bound_ms(),
                     .is_exhausted = solver.is_exhausted(),
                     .num_simulated = solver.num_simulated(),
                     .is_too_large = solver.is_too_large()};
  if (!solved.best.empty() && solved.bound_ms >= solved.best_ms * (1 - kPrecision)) solved.is_exhausted = true;
  return solved;
}

}  // namespace weft
