#include "weft/shard/shard_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/shard/propagate.h"

namespace weft {
namespace {

/// Differences below are rounding.
constexpr double kSame = 1e-9;

/// The tensor whose maker and readers have the most choices together is what a search grows by.
Error too_large(const ShardProblem& problem) {
  const Program& program = problem.program();
  double most = 0;
  size_t largest = 0;
  for (size_t value = 0; value < program.values.size(); ++value) {
    double choices = 1;
    for (const size_t reader : problem.uses().readers_of(value))
      choices *= as_double(std::ssize(problem.options(reader)));
    if (const auto maker = problem.uses().maker_of(value)) choices *= as_double(std::ssize(problem.options(*maker)));
    if (choices > most) {
      most = choices;
      largest = value;
    }
  }
  std::string dims;
  for (const size_t dim : program.values[largest].dims) dims += (dims.empty() ? "" : " ") + program.dims[dim].name;
  return {.kind = ErrorKind::kJob,
          .source = "--mesh",
          .field = program.values[largest].name,
          .problem = fmt::format("with its dims {} has {:.1e} ways to be made and read on {}, too many for an exact "
                                 "search",
                                 dims, most, problem.setting().links.grid().text()),
          .advice = "Give '--search recursive', join axes, or pin operators."};
}

/// Where a solver found nothing.
Error without_solution(const ShardProblem& problem, const ShardSolver& solver) {
  if (solver.failure() == ShardSolver::Failure::kTooLarge) return too_large(problem);
  return {.kind = ErrorKind::kJob,
          .problem = "no strategy is left: pins, layouts of inputs and what is forbidden exclude each other",
          .advice = "Loosen one of them."};
}

Error does_not_fit(const char* search, const ShardTotals& totals, double memory_bytes) {
  return {.kind = ErrorKind::kJob,
          .problem = fmt::format("what the {} search found takes {:.4g} GiB, more than {:.4g} GiB", search,
                                 totals.bytes() / kGiB, memory_bytes / kGiB),
          .advice = "Give '--search exact', which minds the memory."};
}

/// A strategy with its totals.
struct Priced {
  ShardAssignment assignment;
  ShardTotals totals;
};

/// A part of the strategies, and a bound for those of it that fit.
struct Branch {
  AllowedOptions allowed;
  double bound_ms = 0;
  double byte_ms = 0;          ///< the price that gives this bound
  std::optional<Priced> slim;  ///< the two between which the price of a byte hangs: one that fits
  std::optional<Priced> fat;   ///< and one that is faster and does not
};

class MemorySearch {
 public:
  MemorySearch(const ShardProblem& problem, const ShardSearchOptions& options)
      : problem_(problem), limit_(*options.memory_bytes), most_nodes_(options.most_nodes), solver_(problem) {}

  Result<ShardSolution> run() {
    std::optional<Branch> root = bound(all_allowed(problem_));
    if (!root) {
      if (least_bytes_ == 0) return without_solution(problem_, solver_);
      return nothing_fits();
    }
    improve_by_mixing(*root);
    double bound_ms = root->bound_ms;
    if (!is_closed(bound_ms)) bound_ms = can_branch() ? branch(*std::move(root)) : close(*root);
    ShardSolution solution{.assignment = best_->assignment, .totals = best_->totals, .num_solved = num_solved_};
    solution.is_optimal = is_closed(bound_ms);
    solution.bound_ms = solution.is_optimal ? best_->totals.ms() : bound_ms;
    return solution;
  }

 private:
  bool is_closed(double bound_ms) const { return best_->totals.ms() <= bound_ms * (1 + kSame) + 1e-12; }

  Error nothing_fits() const {
    return {.kind = ErrorKind::kJob,
            .problem = fmt::format("no strategy fits into {:.4g} GiB; the least that one takes is {:.4g} GiB",
                                   limit_ / kGiB, least_bytes_ / kGiB),
            .advice = "Raise --memory-gib, take more ranks, or run fewer samples at once."};
  }

  std::optional<Priced> solve(double byte_ms, const AllowedOptions& allowed) {
    ++num_solved_;
    auto solved = solver_.solve(byte_ms, allowed);
    if (!solved) return std::nullopt;
    Priced priced{std::move(solved->assignment), {}};
    priced.totals = evaluate(problem_, priced.assignment);
    if (priced.totals.bytes() <= limit_ && (!best_ || priced.totals.ms() < best_->totals.ms())) best_ = priced;
    return priced;
  }

  /// The best bound that a price for bytes gives: the price is raised until the fastest strategy by time and bytes
  /// together fits. Nothing where none fits.
  std::optional<Branch> bound(AllowedOptions allowed) {
    Branch branch{.allowed = std::move(allowed)};
    std::optional<Priced> fat = solve(0, branch.allowed);
    if (!fat) return std::nullopt;
    if (fat->totals.bytes() <= limit_) {
      branch.bound_ms = fat->totals.ms();
      branch.slim = std::move(fat);
      return branch;
    }
    // So dear that time does not matter.
    std::optional<Priced> slim = solve(1e3, branch.allowed);
    if (!slim || slim->totals.bytes() > limit_) {
      if (slim) least_bytes_ = slim->totals.bytes();
      return std::nullopt;
    }
    double byte_ms = 0;
    for (int round = 0; round < 60; ++round) {
      byte_ms = (slim->totals.ms() - fat->totals.ms()) / (fat->totals.bytes() - slim->totals.bytes());
      if (!(byte_ms > 0)) break;
      std::optional<Priced> next = solve(byte_ms, branch.allowed);
      const double line = slim->totals.ms() + byte_ms * slim->totals.bytes();
      const double cost = next->totals.ms() + byte_ms * next->totals.bytes();
      if (cost - byte_ms * limit_ > branch.bound_ms) {
        branch.bound_ms = cost - byte_ms * limit_;
        branch.byte_ms = byte_ms;
      }
      // Nothing lies below the line through both.
      if (cost >= line - kSame * std::abs(line)) break;
      (next->totals.bytes() <= limit_ ? slim : fat) = std::move(next);
    }
    // A byte that costs nothing bounds, too.
    branch.slim = std::move(slim);
    branch.fat = std::move(fat);
    return branch;
  }

  /// Layers need not be alike: the first ones as in the faster strategy, the others as in the one that fits.
  void improve_by_mixing(const Branch& root) {
    if (!root.fat) return;
    for (size_t repeat = 0; repeat < problem_.program().repeats.size(); ++repeat) {
      for (const bool faster_first : {true, false}) mix(root, repeat, faster_first);
    }
    refine();
  }

  void mix(const Branch& root, size_t repeat, bool faster_first) {
    const Repeat& range = problem_.program().repeats[repeat];
    int64_t low = 0, high = range.count;
    const auto mixed = [&](int64_t faster) {
      Priced priced = *root.slim;
      for (size_t op = range.begin; op < range.end; ++op) {
        for (int64_t i = 0; i < faster; ++i) {
          const auto time = static_cast<size_t>(faster_first ? i : range.count - 1 - i);
          priced.assignment.options[op][time] = root.fat->assignment.options[op][time];
          priced.assignment.states[op][time] = root.fat->assignment.states[op][time];
        }
      }
      priced.totals = evaluate(problem_, priced.assignment);
      return priced;
    };
    // The most layers that fit.
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (mixed(middle).totals.bytes() <= limit_) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    Priced priced = mixed(low);
    if (priced.totals.bytes() <= limit_ && priced.totals.ms() < best_->totals.ms()) best_ = std::move(priced);
  }

  /// What memory is left goes to the weights that gain most time for a byte.
  void refine() {
    struct Gain {
      double ms = 0;
      double bytes = 0;
      size_t op = 0, time = 0, state = 0;
    };
    double left = limit_ - best_->totals.bytes();
    ShardAssignment assignment = best_->assignment;
    std::vector<Gain> gains;
    for (size_t op = 0; op < assignment.options.size(); ++op) {
      for (size_t time = 0; time < assignment.options[op].size(); ++time) {
        const auto& states = problem_.options(op)[assignment.options[op][time]].states;
        const StateOption& now = states[assignment.states[op][time]];
        for (size_t state = 0; state < states.size(); ++state) {
          if (states[state].ms < now.ms)
            gains.push_back({now.ms - states[state].ms, states[state].bytes - now.bytes, op, time, state});
        }
      }
    }
    std::sort(gains.begin(), gains.end(), [](const Gain& a, const Gain& b) { return a.ms * b.bytes > b.ms * a.bytes; });
    std::vector<std::vector<bool>> is_changed(assignment.options.size());
    for (size_t op = 0; op < is_changed.size(); ++op) is_changed[op].resize(assignment.options[op].size(), false);
    for (const Gain& gain : gains) {
      if (gain.bytes > left || is_changed[gain.op][gain.time]) continue;
      is_changed[gain.op][gain.time] = true;
      assignment.states[gain.op][gain.time] = gain.state;
      left -= gain.bytes;
    }
    Priced priced{assignment, evaluate(problem_, assignment)};
    if (priced.totals.bytes() <= limit_ && priced.totals.ms() < best_->totals.ms()) best_ = std::move(priced);
  }

  /// Looks at every strategy that the bound of a price leaves room for. Returns the bound then.
  double close(const Branch& root) {
    if (root.byte_ms <= 0) return root.bound_ms;
    const double slack_ms = best_->totals.ms() - root.bound_ms + kSame * root.bound_ms;
    const ShardSolver::Closed closed = solver_.close(root.byte_ms, slack_ms, limit_);
    if (!closed.is_complete) return root.bound_ms;
    if (closed.better) {
      Priced priced{*closed.better, evaluate(problem_, *closed.better)};
      if (priced.totals.bytes() > limit_) return root.bound_ms;  // by a rounding
      if (priced.totals.ms() < best_->totals.ms()) best_ = std::move(priced);
    }
    return best_->totals.ms();
  }

  /// A choice is one for all layers of a repeat, which are then not all strategies.
  bool can_branch() const {
    const auto& repeats = problem_.program().repeats;
    return std::all_of(repeats.begin(), repeats.end(), [](const Repeat& repeat) { return repeat.count == 1; });
  }

  /// Divides the strategies where the two of a branch differ, until every part's bound is no better than the best.
  /// Returns the bound of all.
  double branch(Branch root) {
    const auto later = [](const Branch& a, const Branch& b) { return a.bound_ms > b.bound_ms; };
    std::vector<Branch> heap;
    heap.push_back(std::move(root));
    for (int64_t nodes = 0; !heap.empty(); ++nodes) {
      std::pop_heap(heap.begin(), heap.end(), later);
      Branch next = std::move(heap.back());
      heap.pop_back();
      if (is_closed(next.bound_ms)) return best_->totals.ms();
      if (nodes >= most_nodes_) return next.bound_ms;
      for (Branch& part : divided(next)) {
        heap.push_back(std::move(part));
        std::push_heap(heap.begin(), heap.end(), later);
      }
    }
    return best_->totals.ms();
  }

  std::vector<Branch> divided(const Branch& branch) {
    if (!branch.fat) return {};  // its bound is a strategy that fits
    const ShardAssignment& slim = branch.slim->assignment;
    const ShardAssignment& fat = branch.fat->assignment;
    for (size_t op = 0; op < slim.options.size(); ++op) {
      const size_t option = fat.options[op][0], state = fat.states[op][0];
      if (option == slim.options[op][0] && state == slim.states[op][0]) continue;
      AllowedOptions without = branch.allowed;
      without.states[op][option] &= ~(uint64_t{1} << state);
      AllowedOptions with = branch.allowed;
      std::fill(with.states[op].begin(), with.states[op].end(), 0);
      with.states[op][option] = uint64_t{1} << state;
      return bounded(branch, std::move(without), std::move(with));
    }
    for (size_t value = 0; value < fat.sources.size(); ++value) {
      if (fat.sources[value] == slim.sources[value]) continue;
      const std::vector<size_t>& codes = problem_.source_codes(value);
      const auto place =
          static_cast<size_t>(std::find(codes.begin(), codes.end(), fat.sources[value][0]) - codes.begin());
      AllowedOptions without = branch.allowed;
      without.sources[value][place] = false;
      AllowedOptions with = branch.allowed;
      with.sources[value].assign(codes.size(), false);
      with.sources[value][place] = true;
      return bounded(branch, std::move(without), std::move(with));
    }
    return {};
  }

  std::vector<Branch> bounded(const Branch& branch, AllowedOptions without, AllowedOptions with) {
    std::vector<Branch> parts;
    for (AllowedOptions* allowed : {&without, &with}) {
      if (auto part = bound(std::move(*allowed))) {
        part->bound_ms = std::max(part->bound_ms, branch.bound_ms);
        parts.push_back(*std::move(part));
      }
    }
    return parts;
  }

  const ShardProblem& problem_;
  double limit_;
  int64_t most_nodes_;
  ShardSolver solver_;
  std::optional<Priced> best_;
  double least_bytes_ = 0;
  int64_t num_solved_ = 0;
};

/// Axes by their links, the slowest first.
std::vector<size_t> slowest_first(const AxisLinks& links) {
  std::vector<size_t> order(links.num_axes());
  for (size_t axis = 0; axis < order.size(); ++axis) order[axis] = axis;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return links.along(1u << a).ring_bytes_per_ms < links.along(1u << b).ring_bytes_per_ms;
  });
  return order;
}

/// Decides one axis after the other: those that are not decided yet do the same on all ranks. Then every axis is
/// decided anew beside the others, as long as that helps.
class RecursiveSearch {
 public:
  explicit RecursiveSearch(const ShardProblem& problem) : problem_(problem) {}

  Result<ShardSolution> run(const ShardSearchOptions& options) {
    std::vector<size_t> order = slowest_first(problem_.setting().links);
    if (!decide(order)) return too_large(problem_);
    // Where the slow link goes first, it takes the dims that the others would need.
    std::reverse(order.begin(), order.end());
    decide(order);
    ShardSolution solution{.assignment = std::move(best_->assignment), .num_solved = num_solved_};
    solution.totals = evaluate(problem_, solution.assignment);
    if (options.memory_bytes && solution.totals.bytes() > *options.memory_bytes)
      return does_not_fit("recursive", solution.totals, *options.memory_bytes);
    return solution;
  }

 private:
  static constexpr int kMostRounds = 8;

  size_t num_operators() const { return problem_.program().operators.size(); }

  bool decide(const std::vector<size_t>& order) {
    is_decided_.assign(order.size(), false);
    decided_.assign(num_operators(), {});
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kMostRounds; ++round) {
      bool is_better = false;
      for (const size_t axis : order) {
        const AllowedOptions allowed = allowed_on(axis);
        const auto solved = ShardSolver(problem_, allowed).solve(0, allowed);
        ++num_solved_;
        if (!solved) return false;
        const bool was_decided = is_decided_[axis];
        is_decided_[axis] = true;
        if (was_decided && solved->cost >= least * (1 - kSame)) continue;
        is_better = true;
        for (size_t op = 0; op < num_operators(); ++op) {
          // Of layers that differ, the one in the middle speaks for all.
          const std::vector<size_t>& times = solved->assignment.options[op];
          decided_[op] = problem_.options(op)[times[times.size() / 2]].choices;
        }
        const bool has_all = std::all_of(is_decided_.begin(), is_decided_.end(), [](bool is) { return is; });
        if (!has_all) continue;
        least = solved->cost;
        if (!best_ || solved->cost < best_->cost) best_ = *solved;
      }
      if (!is_better) break;
    }
    return true;
  }

  /// Every choice on one axis; on the others what is decided, or the same.
  AllowedOptions allowed_on(size_t axis) const {
    AllowedOptions allowed = all_allowed(problem_);
    for (size_t op = 0; op < num_operators(); ++op) {
      std::vector<uint64_t>& states = allowed.states[op];
      const std::vector<uint64_t> all = states;
      if (keep(op, axis, /*others_same=*/true, states)) continue;
      // A pin of an axis that is not decided yet leaves no "same".
      states = all;
      keep(op, axis, /*others_same=*/false, states);
    }
    return allowed;
  }

  bool keep(size_t op, size_t axis, bool others_same, std::vector<uint64_t>& states) const {
    bool has_any = false;
    for (size_t option = 0; option < states.size(); ++option) {
      const Choices& choices = problem_.options(op)[option].choices;
      bool fits = true;
      for (size_t other = 0; other < choices.size(); ++other) {
        if (other == axis) continue;
        fits = fits && (is_decided_[other] ? choices[other] == decided_[op][other]
                                           : !others_same || choices[other] == Choice::same());
      }
      if (!fits) states[option] = 0;
      has_any = has_any || fits;
    }
    return has_any;
  }

  const ShardProblem& problem_;
  std::vector<bool> is_decided_;
  std::vector<Choices> decided_;
  std::optional<ShardSolver::Solved> best_;
  int64_t num_solved_ = 0;
};

/// What operators take at least, each by itself: a bound for problems that are too large to be solved.
double least_of_each(const ShardProblem& problem) {
  const Program& program = problem.program();
  double sum = 0;
  for (size_t op = 0; op < program.operators.size(); ++op) {
    double least = std::numeric_limits<double>::infinity();
    for (const OperatorOption& option : problem.options(op))
      least = std::min(least, problem.option_ms(option) + option.states.front().ms);
    const auto repeat = problem.uses().repeat_of(op);
    sum += least * (repeat ? as_double(program.repeats[*repeat].count) : 1);
  }
  return sum;
}

/// How much faster the best could be, where the search itself does not know.
void add_bound(const ShardProblem& problem, ShardSolution& solution) {
  ShardSolver solver(problem);
  const auto best = solver.solve(0, all_allowed(problem));
  solution.bound_ms = best ? best->cost : least_of_each(problem);
  solution.is_optimal = best && solution.totals.ms() <= best->cost * (1 + kSame);
}

}  // namespace

Result<ShardSolution> search_strategy(const ShardProblem& problem, const ShardSearchOptions& options) {
  if (options.search == ShardSearch::kRecursive) {
    WEFT_TRY(ShardSolution solution, RecursiveSearch(problem).run(options));
    add_bound(problem, solution);
    return solution;
  }
  if (options.search == ShardSearch::kPropagate) {
    ShardSolution solution{.assignment = propagate(problem), .num_solved = 1};
    solution.totals = evaluate(problem, solution.assignment);
    if (options.memory_bytes && solution.totals.bytes() > *options.memory_bytes)
      return does_not_fit("propagating", solution.totals, *options.memory_bytes);
    add_bound(problem, solution);
    return solution;
  }
  if (options.memory_bytes) return MemorySearch(problem, options).run();
  ShardSolver solver(problem);
  auto solved = solver.solve(0, all_allowed(problem));
  if (!solved) return without_solution(problem, solver);
  ShardSolution solution{.assignment = std::move(solved->assignment), .is_optimal = true, .num_solved = 1};
  solution.totals = evaluate(problem, solution.assignment);
  solution.bound_ms = solution.totals.ms();
  return solution;
}

}  // namespace weft
