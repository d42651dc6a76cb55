#include "weft/shard/propagate.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

class Propagation {
 public:
  explicit Propagation(const ShardProblem& problem)
      : problem_(problem), chosen_(problem.program().operators.size()), codes_(problem.program().values.size()) {}

  ShardAssignment run() {
    const Program& program = problem_.program();
    const size_t count = program.operators.size();
    for (size_t step = 0; step < count; ++step) {
      // The fewest options first; of equals one that touches what is decided; of these the first.
      size_t next = count;
      std::pair<size_t, int> best{std::numeric_limits<size_t>::max(), 2};
      for (size_t op = 0; op < count; ++op) {
        if (chosen_[op]) continue;
        const bool is_pinned = problem_.options(op).size() == 1;
        const std::pair<size_t, int> rank{is_pinned ? 0 : 1, touches(op) ? 0 : 1};
        if (rank < best) {
          best = rank;
          next = op;
        }
      }
      decide(next);
    }
    return assignment();
  }

 private:
  /// The value as it is where it is read: the last time's, for a repeat.
  std::optional<size_t> made_code(size_t value) const {
    if (const auto op = problem_.uses().maker_of(value)) {
      if (!chosen_[*op]) return std::nullopt;
      return problem_.options(*op)[*chosen_[*op]].result;
    }
    return codes_[value];
  }

  bool touches(size_t op) const {
    const Program& program = problem_.program();
    for (const size_t operand : program.operators[op].operands) {
      if (program.values[operand].role == ProgramValue::Role::kResult && made_code(operand)) return true;
    }
    for (const size_t reader : problem_.uses().readers_of(program.operators[op].result)) {
      if (chosen_[reader]) return true;
    }
    return false;
  }

  void decide(size_t op) {
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t option = 0; option < problem_.options(op).size(); ++option) {
      chosen_[op] = option;
      const double cost = cost_around(op);
      if (cost < least) {
        least = cost;
        best = option;
      }
    }
    chosen_[op] = best;
  }

  /// Of the operator and the values that it reads and makes, as far as their others are decided.
  double cost_around(size_t op) const {
    const Program& program = problem_.program();
    const OperatorOption& option = problem_.options(op)[*chosen_[op]];
    double cost = problem_.option_ms(option) + option.states.front().ms;
    for (const size_t operand : program.operators[op].operands) cost += cost_of(operand);
    return cost + cost_of(program.operators[op].result);
  }

  double cost_of(size_t value) const {
    const auto made = made_code(value);
    if (!made || !problem_.is_priced(value)) return 0;
    std::vector<std::pair<size_t, size_t>> readers;
    for (const size_t reader : problem_.uses().readers_of(value)) {
      if (chosen_[reader]) readers.emplace_back(reader, *chosen_[reader]);
    }
    return readers.empty() ? 0 : problem_.microbatches() * problem_.price_value(value, *made, readers).ms;
  }

  /// Inputs are held as their first reader wants them.
  ShardAssignment assignment() const {
    const Program& program = problem_.program();
    ShardAssignment made;
    for (size_t op = 0; op < chosen_.size(); ++op) {
      const auto repeat = problem_.uses().repeat_of(op);
      const size_t times = repeat ? static_cast<size_t>(program.repeats[*repeat].count) : 1;
      made.options.emplace_back(times, *chosen_[op]);
      made.states.emplace_back(times, 0);
    }
    made.sources.resize(program.values.size());
    for (size_t value = 0; value < program.values.size(); ++value) {
      if (!problem_.is_source(value) || problem_.uses().readers_of(value).empty()) continue;
      std::vector<std::pair<size_t, size_t>> readers;
      for (const size_t reader : problem_.uses().readers_of(value)) readers.emplace_back(reader, *chosen_[reader]);
      double least = std::numeric_limits<double>::infinity();
      for (const size_t code : problem_.source_codes(value)) {
        const double cost = problem_.price_value(value, code, readers).ms + problem_.price_source(value, code).ms;
        if (cost >= least) continue;
        least = cost;
        made.sources[value].assign(made.options[readers.front().first].size(), code);
      }
    }
    return made;
  }

  const ShardProblem& problem_;
  std::vector<std::optional<size_t>> chosen_;
  std::vector<std::optional<size_t>> codes_;
};

}  // namespace

ShardAssignment propagate(const ShardProblem& problem) {
  return Propagation(problem).run();
}

}  // namespace weft
