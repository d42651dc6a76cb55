#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weft/program/strategy_entries.h"

namespace weft {

/// Names that a strategy's entries are looked up among: those of operators, of inputs or of weights. They must outlive
/// it.
class PatternNames {
 public:
  /// Patterns with a star or a question mark, times names: as many are compared in a second or two.
  static constexpr size_t kMostComparisons = 10'000'000;

  /// `what` they are, in the plural.
  explicit PatternNames(std::string_view what) : what_(what) {}

  void add(std::string_view name, size_t index);
  /// The numbers of names that fit, in the order in which they were added.
  std::vector<size_t> fitting(const std::string& pattern) const;
  /// More patterns than these names allow: the error's field is the first one too many.
  std::optional<Error> find_too_many(const std::vector<StrategyEntry>& entries) const;

 private:
  std::string_view what_;
  std::vector<std::pair<std::string_view, size_t>> names_;
  std::unordered_map<std::string_view, std::vector<size_t>> by_name_;
  size_t longest_ = 0;
};

}  // namespace weft
