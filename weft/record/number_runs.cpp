#include "weft/record/number_runs.h"

#include <cstdlib>

namespace weft {
namespace {

constexpr int64_t kLargest = int64_t{1} << 48;
constexpr int64_t kLargestStep = int64_t{1} << 24;

bool is_in(int64_t number, IntegerRange range) {
  return number >= range.min && number <= range.max;
}

}  // namespace

Json runs_of(const std::vector<int64_t>& numbers) {
  Json runs = Json::array();
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    const int64_t step = end < numbers.size() ? numbers[end] - numbers[begin] : 0;
    if (std::abs(step) <= kLargestStep) {
      while (end < numbers.size() && numbers[end] - numbers[end - 1] == step) ++end;
    }
    runs.push_back(numbers[begin]);
    runs.push_back(end - begin);
    runs.push_back(end - begin > 1 ? step : 0);
    begin = end;
  }
  return runs;
}

std::optional<std::vector<int64_t>> numbers_in(const Json& runs, IntegerRange range, NumberBudget& budget) {
  if (!runs.is_array() || runs.size() % 3 != 0) return std::nullopt;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < runs.size(); i += 3) {
    const auto first = whole_number(runs[i], {-kLargest, kLargest});
    const auto count = whole_number(runs[i + 1], {1, kLargest});
    const auto step = whole_number(runs[i + 2], {-kLargestStep, kLargestStep});
    if (!first || !count || !step) return std::nullopt;
    if (budget.left >= 0) budget.left -= *count;
    if (budget.left < 0) return std::nullopt;
    if (!is_in(*first, range)) return std::nullopt;
    for (int64_t k = 0; k < *count; ++k) {
      numbers.push_back(*first + k * *step);
      if (!is_in(numbers.back(), range)) return std::nullopt;
    }
  }
  return numbers;
}

}  // namespace weft
