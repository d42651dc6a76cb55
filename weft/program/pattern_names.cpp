#include "weft/program/pattern_names.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/pattern.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// Fits one name alone, which a table finds.
bool is_name(const std::string& pattern) {
  return pattern.find_first_of("*?") == std::string::npos;
}

}  // namespace

void PatternNames::add(std::string_view name, size_t index) {
  names_.emplace_back(name, index);
  by_name_[name].push_back(index);
  longest_ = std::max(longest_, name.size());
}

std::vector<size_t> PatternNames::fitting(const std::string& pattern) const {
  if (is_name(pattern)) {
    const auto found = by_name_.find(pattern);
    return found == by_name_.end() ? std::vector<size_t>() : found->second;
  }
  // One with more letters than the longest name fits none.
  const auto num_stars = static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '*'));
  if (pattern.size() - num_stars > longest_) return {};
  std::vector<size_t> found;
  for (const auto& [name, index] : names_) {
    if (fits_pattern(name, pattern)) found.push_back(index);
  }
  return found;
}

std::optional<Error> PatternNames::find_too_many(const std::vector<StrategyEntry>& entries) const {
  if (names_.empty()) return std::nullopt;
  const size_t most = kMostComparisons / names_.size();
  size_t num_patterns = 0;
  for (const StrategyEntry& entry : entries) {
    if (is_name(entry.pattern) || ++num_patterns <= most) continue;
    return Error{
        .field = printable(entry.pattern),
        .problem = fmt::format("is one pattern with '*' or '?' more than {}, which {} {} allow",
                               with_commas(static_cast<int64_t>(most)), with_commas(std::ssize(names_)), what_),
        .advice = "Let a pattern stand for more of them, or write whole names."};
  }
  return std::nullopt;
}

}  // namespace weft
