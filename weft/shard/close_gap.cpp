#include <algorithm>

#include "weft/shard/label_elimination.h"
#include "weft/shard/shard_solver.h"

namespace weft {
namespace {

/// Sums of labels after which a proof is given up.
constexpr double kMostWork = 1e7;
/// Points of one value's table beyond which it is not begun: as a rule a mesh of three axes.
constexpr size_t kMostPoints = 1'000'000;

double cheapest(const LabelSet& labels, double byte_ms) {
  double least = kNever;
  for (const Label& label : labels) least = std::min(least, label.ms + byte_ms * label.bytes);
  return least;
}

}  // namespace

/// One repeat as a way through its layers' layouts, with labels at every stop. What is left to come is bounded by the
/// price of bytes, so that few labels are kept.
class GapCloser {
 public:
  GapCloser(const ShardSolver& solver, const LabelLimits& limits)
      : solver_(solver), limits_(limits), problem_(solver.problem_), repeat_(problem_.program().repeats.front()) {}

  ShardSolver::Closed run() {
    if (!make_layer() || !make_ends()) return {};
    double total = kNever;
    for (size_t before = 0; before < num_before_; ++before)
      total = std::min(total, bounds_from(before).front()[start_of(before)]);
    allowed_ = total + limits_.slack_ms;
    for (size_t before = 0; before < num_before_; ++before) {
      if (!walk(before)) return {};
    }
    ShardSolver::Closed closed{.is_complete = true, .better = {}};
    if (best_) closed.better = read(*best_);
    return closed;
  }

 private:
  struct Found {
    Label label;        ///< of all layers, with their trees
    uint32_t ends = 0;  ///< tree of what is outside of the repeat
  };

  void fill(const ShardSolver::Region& region, LabelElimination& elimination) {
    const Program& program = problem_.program();
    for (size_t i = 0; i < region.variables.size(); ++i) {
      const ShardSolver::Variable& variable = region.variables[i];
      std::vector<LabelSet> sets(region.sizes[i]);
      for (size_t choice = 0; choice < sets.size(); ++choice) {
        if (variable.kind == ShardSolver::Variable::Kind::kOperator) {
          const OperatorOption& option = problem_.options(variable.index)[solver_.option_of(variable.index, choice)];
          for (size_t state = 0; state < option.states.size(); ++state)
            sets[choice].push_back({problem_.option_ms(option) + option.states[state].ms, option.states[state].bytes,
                                    trees_.leaf({i, choice, state})});
          keep_useful(sets[choice], limits_);
        } else if (variable.kind == ShardSolver::Variable::Kind::kSource) {
          const ValuePrice price = problem_.price_source(variable.index, solver_.code_of(variable, choice));
          sets[choice] = {{price.ms, price.bytes, trees_.leaf({i, choice, 0})}};
        } else if (variable.kind == ShardSolver::Variable::Kind::kCarriedIn ||
                   !solver_.is_summand_at_the_end(program.repeats[variable.index].carried_out, choice)) {
          sets[choice] = {{}};
        }
      }
      elimination.add(i, std::move(sets));
    }
    for (const auto& value : region.values) elimination.add(value.variables, value.ms, value.bytes);
  }

  bool make_layer() {
    const ShardSolver::Region& region = solver_.inside_.front();
    LabelElimination elimination(region.sizes, limits_, trees_);
    fill(region, elimination);
    const Program& program = problem_.program();
    const size_t last = *solver_.find(region, ShardSolver::Variable::Kind::kOperator,
                                      *program.find_operator(program.values[repeat_.carried_out].name));
    if (!elimination.run({0, last})) return false;
    work_ += elimination.work();
    num_codes_ = region.sizes[0];
    layer_.resize(num_codes_ * num_codes_);
    for (size_t before = 0; before < num_codes_; ++before) {
      for (size_t choice = 0; choice < region.sizes[last]; ++choice) {
        const LabelSet& labels = elimination.remaining()[before * region.sizes[last] + choice];
        LabelSet& all = layer_[before * num_codes_ + solver_.code_of(region.variables[last], choice)];
        all.insert(all.end(), labels.begin(), labels.end());
      }
    }
    for (LabelSet& labels : layer_) {
      keep_useful(labels, limits_);
      cheapest_.push_back(cheapest(labels, limits_.byte_ms));
    }
    return true;
  }

  bool make_ends() {
    const ShardSolver::Region& region = solver_.outside_;
    LabelElimination elimination(region.sizes, limits_, trees_);
    fill(region, elimination);
    before_ = solver_.maker_of(region, repeat_.carried_in);
    const size_t after = *solver_.find(region, ShardSolver::Variable::Kind::kCarriedOut, 0);
    if (!elimination.run({before_, after})) return false;
    work_ += elimination.work();
    num_before_ = region.sizes[before_];
    ends_ = elimination.remaining();
    return region.sizes[after] == num_codes_;
  }

  size_t start_of(size_t before) const { return solver_.code_of(solver_.outside_.variables[before_], before); }

  /// By layers done and the layout then: the least that the rest costs.
  std::vector<std::vector<double>> bounds_from(size_t before) const {
    const auto count = static_cast<size_t>(repeat_.count);
    std::vector<std::vector<double>> bounds(count + 1, std::vector<double>(num_codes_, kNever));
    for (size_t code = 0; code < num_codes_; ++code)
      bounds[count][code] = cheapest(ends_[before * num_codes_ + code], limits_.byte_ms);
    for (size_t done = count; done-- > 0;) {
      for (size_t from = 0; from < num_codes_; ++from) {
        for (size_t to = 0; to < num_codes_; ++to)
          bounds[done][from] = std::min(bounds[done][from], cheapest_[from * num_codes_ + to] + bounds[done + 1][to]);
      }
    }
    return bounds;
  }

  bool walk(size_t before) {
    const std::vector<std::vector<double>> bounds = bounds_from(before);
    std::vector<LabelSet> now(num_codes_);
    if (bounds[0][start_of(before)] > allowed_) return true;
    now[start_of(before)] = {{}};
    for (size_t done = 1; done < bounds.size(); ++done) {
      std::vector<LabelSet> next(num_codes_);
      for (size_t from = 0; from < num_codes_; ++from) {
        if (now[from].empty()) continue;
        for (size_t to = 0; to < num_codes_; ++to) {
          if (bounds[done][to] == kNever) continue;
          if (!step(now[from], layer_[from * num_codes_ + to], allowed_ - bounds[done][to], next[to])) return false;
        }
      }
      for (LabelSet& labels : next) keep_useful(labels, limits_);
      now = std::move(next);
    }
    for (size_t code = 0; code < num_codes_; ++code) {
      for (const Label& label : now[code]) {
        for (const Label& end : ends_[before * num_codes_ + code]) {
          const Label whole{label.ms + end.ms, label.bytes + end.bytes, label.tree};
          if (whole.bytes <= limits_.most_bytes && (!best_ || whole.ms < best_->label.ms)) best_ = {whole, end.tree};
        }
      }
    }
    return true;
  }

  bool step(const LabelSet& now, const LabelSet& layer, double most_cost, LabelSet& next) {
    work_ += static_cast<double>(now.size() * layer.size());
    if (work_ > limits_.most_work) return false;
    for (const Label& label : now) {
      for (const Label& own : layer) {
        const Label sum{label.ms + own.ms, label.bytes + own.bytes, 0};
        if (sum.bytes > limits_.most_bytes || sum.ms + limits_.byte_ms * sum.bytes > most_cost) continue;
        next.push_back({sum.ms, sum.bytes, trees_.layer(label.tree, own.tree)});
      }
    }
    return true;
  }

  ShardAssignment read(const Found& found) const {
    ShardAssignment assignment;
    const Program& program = problem_.program();
    assignment.options.resize(program.operators.size());
    assignment.states.resize(program.operators.size());
    assignment.sources.resize(program.values.size());
    const auto take = [&](const ShardSolver::Region& region, uint32_t tree) {
      for (const LabelTrees::Chosen& chosen : trees_.choices(tree)) {
        const ShardSolver::Variable& variable = region.variables[chosen.variable];
        if (variable.kind == ShardSolver::Variable::Kind::kSource) {
          assignment.sources[variable.index].push_back(solver_.code_of(variable, chosen.choice));
        } else {
          assignment.options[variable.index].push_back(solver_.option_of(variable.index, chosen.choice));
          assignment.states[variable.index].push_back(chosen.state);
        }
      }
    };
    take(solver_.outside_, found.ends);
    for (const uint32_t layer : trees_.layers(found.label.tree)) take(solver_.inside_.front(), layer);
    return assignment;
  }

  const ShardSolver& solver_;
  LabelLimits limits_;
  const ShardProblem& problem_;
  const Repeat& repeat_;
  LabelTrees trees_;
  std::vector<LabelSet> layer_;   ///< by the layouts before and after
  std::vector<double> cheapest_;  ///< likewise
  std::vector<LabelSet> ends_;    ///< by the choice of what makes the first layout, and by the last layout
  size_t num_codes_ = 0;
  size_t num_before_ = 0;
  size_t before_ = 0;  ///< variable
  double allowed_ = 0;
  double work_ = 0;
  std::optional<Found> best_;
};

ShardSolver::Closed ShardSolver::close(double byte_ms, double slack_ms, double most_bytes) const {
  if (problem_.program().repeats.size() != 1) return {};
  for (const Region* region : {&outside_, &inside_.front()}) {
    const bool is_large = std::any_of(region->values.begin(), region->values.end(),
                                      [](const ValueTable& value) { return value.ms.size() > kMostPoints; });
    if (region->is_too_large || is_large) return {};
  }
  return GapCloser(*this, {.byte_ms = byte_ms, .slack_ms = slack_ms, .most_bytes = most_bytes, .most_work = kMostWork})
      .run();
}

}  // namespace weft
