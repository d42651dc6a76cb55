#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/never.h"

namespace weft {

/// Costs of some variables' choices together, the first variable's running slowest.
struct ChoiceCosts {
  std::vector<size_t> variables;
  std::vector<double> costs;
};

/// The assignment of least total cost, exactly: variables are taken out one by one, each leaving a table of its
/// neighbours, the cheapest to take out first.
class Elimination {
 public:
  /// Work above which it is given up: additions in all.
  static constexpr double kMostWork = 4e9;
  static constexpr double kMostEntries = 5e7;

  explicit Elimination(std::vector<size_t> domain_sizes);

  void add(ChoiceCosts table);
  /// Takes out every variable but these. False where that is too much work.
  bool run(const std::vector<size_t>& kept);
  /// What is left: one table of the kept variables, in the order in which they were given.
  const ChoiceCosts& remaining() const { return remaining_; }
  /// Sets the variables that were taken out, for given choices of those that were kept.
  void complete(std::vector<size_t>& assignment) const;

 private:
  struct TakenOut {
    size_t variable = 0;
    std::vector<size_t> neighbours;
    std::vector<uint32_t> best;  ///< by the neighbours' choices
  };

  double entries(const std::vector<size_t>& variables) const;
  std::vector<size_t> neighbours_of(size_t variable);
  double price_of(size_t variable);
  void take_out(size_t variable, const std::vector<size_t>& neighbours);

  std::vector<size_t> sizes_;
  std::vector<ChoiceCosts> tables_;              ///< in the order in which they are added up
  std::vector<bool> is_used_up_;                 ///< by table
  std::vector<std::vector<size_t>> own_tables_;  ///< by variable: those left that have it, in order
  std::vector<size_t> seen_;                     ///< by variable: the last call of neighbours_of that saw it
  size_t num_calls_ = 0;
  std::vector<TakenOut> taken_out_;
  ChoiceCosts remaining_;
};

}  // namespace weft
