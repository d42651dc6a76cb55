#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "weft/shard/elimination.h"
#include "weft/shard/min_plus.h"
#include "weft/shard/shard_problem.h"

namespace weft {

/// A strategy of a whole program. An operator of a repeat has a choice for every time.
struct ShardAssignment {
  std::vector<std::vector<size_t>> options;  ///< by operator and time, of ShardProblem::options
  std::vector<std::vector<size_t>> states;   ///< likewise, of OperatorOption::states
  std::vector<std::vector<size_t>> sources;  ///< by value and time: the code of a source's layout

  bool operator==(const ShardAssignment&) const = default;
};

/// What a strategy costs: a step's time, and bytes on the rank that holds most.
struct ShardTotals {
  double compute_ms = 0;
  double inside_ms = 0;
  double transition_ms = 0;
  double state_ms = 0;  ///< what keeping weights holds up: communication that is not hidden, and updates
  double state_bytes = 0;
  double kept_bytes = 0;

  double ms() const { return compute_ms + inside_ms + transition_ms + state_ms; }
  double bytes() const { return state_bytes + kept_bytes; }
};

/// Added up term by term, without the solver's tables.
ShardTotals evaluate(const ShardProblem& problem, const ShardAssignment& assignment);

/// What may be chosen.
struct AllowedOptions {
  std::vector<std::vector<uint64_t>> states;  ///< by operator and option: bit s for a state
  std::vector<std::vector<bool>> sources;     ///< by value and layout of a source
};
AllowedOptions all_allowed(const ShardProblem& problem);

/// The strategy that is least in time + byte_ms · bytes, exactly. Layers of a repeat become one table from the layout
/// before to the layout after, and its power.
class ShardSolver {
 public:
  /// All options may come.
  explicit ShardSolver(const ShardProblem& problem);
  /// Only those of a domain will be allowed: tables have no room for others, so that much larger problems can be
  /// solved.
  ShardSolver(const ShardProblem& problem, const AllowedOptions& domain);

  struct Solved {
    double cost = 0;
    ShardAssignment assignment;
  };
  enum class Failure { kNone, kTooLarge, kNothingAllowed };

  std::optional<Solved> solve(double byte_ms, const AllowedOptions& allowed);
  struct Closed {
    bool is_complete = false;                    ///< every strategy that could be better was looked at
    std::optional<ShardAssignment> better = {};  ///< the fastest of them that fits
  };
  /// Of a program with one repeat: looks at all strategies that take no more than most_bytes and are at most slack_ms
  /// dearer than the cheapest by time + byte_ms · bytes, by Pareto points. Not complete where these are too many.
  Closed close(double byte_ms, double slack_ms, double most_bytes) const;
  /// Why the last call found nothing.
  Failure failure() const { return failure_; }

 private:
  friend class GapCloser;

  struct Variable {
    enum class Kind : uint8_t { kOperator, kSource, kCarriedIn, kCarriedOut };
    Kind kind = Kind::kOperator;
    size_t index = 0;  ///< an operator, a value or a repeat
  };
  /// Prices of a value, by the choices of the variable that makes it and of those that read it.
  struct ValueTable {
    std::vector<size_t> variables;
    std::vector<double> ms;
    std::vector<double> bytes;
  };
  /// The operators of a repeat, or those outside of all.
  struct Region {
    std::vector<Variable> variables;
    std::vector<size_t> sizes;
    std::vector<ValueTable> values;
    std::map<std::pair<Variable::Kind, size_t>, size_t> places;  ///< of the variables
    bool is_too_large = false;
  };
  struct Body {
    Elimination elimination{{}};
    std::vector<uint32_t>
        last;  ///< by the codes before and after: the choice of the operator that makes the last value
    std::unique_ptr<MinPlusPower> power;
  };

  /// What repeats carry, and which values a region looks at.
  struct Carried {
    explicit Carried(const ShardProblem& problem);

    std::vector<bool> in;                    ///< by value: some repeat begins with it
    std::vector<std::optional<size_t>> out;  ///< by value: the repeat that ends with it
    std::vector<std::vector<size_t>> read;   ///< by repeat: values whose first reader it has
    std::vector<size_t> read_outside;        ///< those that no repeat reads first, or that one begins with
  };

  Region make_region(std::optional<size_t> repeat) const;
  void add_value(Region& region, size_t value, size_t maker) const;
  size_t size_of(const Variable& variable) const;
  size_t code_of(const Variable& variable, size_t choice) const;
  std::optional<size_t> find(const Region& region, Variable::Kind kind, size_t index) const;
  void add_costs(const Region& region, double byte_ms, const AllowedOptions& allowed, Elimination& elimination) const;
  ChoiceCosts repeat_costs(const Region& region, size_t repeat) const;
  bool solve_body(size_t repeat, double byte_ms, const AllowedOptions& allowed);
  void read_choices(const Region& region, const std::vector<size_t>& choices, double byte_ms,
                    const AllowedOptions& allowed, ShardAssignment& assignment) const;
  void read_body(size_t repeat, size_t before, size_t after, double byte_ms, const AllowedOptions& allowed,
                 ShardAssignment& assignment) const;
  size_t best_state(size_t op, size_t option, double byte_ms, const AllowedOptions& allowed) const;
  size_t maker_of(const Region& region, size_t value) const;
  /// Whether a repeat's last value would leave the program as a summand.
  bool is_summand_at_the_end(size_t value, size_t code) const;

  size_t option_of(size_t op, size_t choice) const { return options_[op][choice]; }

  const ShardProblem& problem_;
  Carried carried_;
  std::vector<std::vector<size_t>> options_;  ///< by operator: options of the domain, which choices count
  Region outside_;
  std::vector<Region> inside_;  ///< by repeat
  std::vector<Body> bodies_;
  Failure failure_ = Failure::kNone;
};

}  // namespace weft
