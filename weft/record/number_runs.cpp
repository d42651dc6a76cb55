#include "weft/record/number_runs.h"

#include <cstdlib>

namespace weft {
namespace {

constexpr int64_t kLargest = int64_t{1} << 48;
constexpr int64_t kLargestStep = int64_t{1} << 24;

bool is_small(const Json& value) {
  return value.is_number_integer() && value.get<int64_t>() >= -kLargest && value.get<int64_t>() <= kLargest;
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

std::optional<std::vector<int64_t>> numbers_in(const Json& runs, int64_t most) {
  if (!runs.is_array() || runs.size() % 3 != 0) return std::nullopt;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < runs.size(); i += 3) {
    for (size_t part = 0; part < 3; ++part) {
      if (!is_small(runs[i + part])) return std::nullopt;
    }
    const auto first = runs[i].get<int64_t>(), count = runs[i + 1].get<int64_t>(), step = runs[i + 2].get<int64_t>();
    if (count < 1 || count > most - static_cast<int64_t>(numbers.size()) || std::abs(step) > kLargestStep)
      return std::nullopt;
    for (int64_t k = 0; k < count; ++k) numbers.push_back(first + k * step);
  }
  return numbers;
}

}  // namespace weft
