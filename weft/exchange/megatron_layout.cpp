#include "weft/exchange/megatron_layout.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

std::string stage_text(int64_t num_layers) {
  constexpr int64_t kMostSpelledOut = 3;
  if (num_layers <= kMostSpelledOut) return std::string(static_cast<size_t>(num_layers), 't');
  return fmt::format("t*{}", num_layers);
}

/// Equal stages in a row as one group; a pair is as short written out.
std::string repeated(const std::string& stage, size_t times) {
  if (times > 2 && !stage.empty()) return fmt::format("({}|)*{},", stage, times);
  std::string text;
  for (size_t i = 0; i < times; ++i) text += stage + "|";
  return text;
}

/// Unfolds stars: "t*3" is "ttt", "(t|)*2" is "t|t|". Commas only part what stands beside them.
class LayoutText {
 public:
  explicit LayoutText(std::string_view text) : text_(text) {}

  std::string unfolded() { return group(/*is_inner=*/false); }
  const std::string& problem() const { return problem_; }
  bool is_read() const { return at_ == text_.size(); }

 private:
  static constexpr size_t kLongest = 100'000;

  std::string group(bool is_inner) {
    std::string whole;
    while (at_ < text_.size() && problem_.empty()) {
      const char c = text_[at_];
      if (c == ')' && is_inner) break;
      std::string unit;
      if (c == '(') {
        ++at_;
        if (is_inner) problem_ = "has brackets inside brackets";
        unit = group(/*is_inner=*/true);
        if (at_ >= text_.size() || text_[at_] != ')') problem_ = "has a bracket that is not closed";
        ++at_;
      } else {
        ++at_;
        if (c != ',') unit = c;
      }
      // Megatron-LM drops commas first: a star behind one would repeat what stands before it.
      if (unit.empty() && at_ < text_.size() && text_[at_] == '*') problem_ = "has a star behind nothing to repeat";
      const int64_t times = problem_.empty() ? read_times() : 0;
      if (whole.size() + unit.size() * static_cast<size_t>(times) > kLongest)
        problem_ = "has more layers than models have";
      for (int64_t i = 0; i < times && problem_.empty(); ++i) whole += unit;
    }
    return whole;
  }

  int64_t read_times() {
    if (at_ >= text_.size() || text_[at_] != '*') return 1;
    ++at_;
    int64_t times = 0;
    const size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) && times < 1'000'000)
      times = 10 * times + (text_[at_++] - '0');
    if (at_ == begin) problem_ = "has a star without a number";
    return std::min<int64_t>(times, kLongest);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string problem_;
};

}  // namespace

Result<std::vector<int64_t>> parse_megatron_layout(std::string_view text) {
  LayoutText layout(text);
  const std::string unfolded = layout.unfolded();
  const auto wrong = [](std::string problem) { return Error{.problem = std::move(problem)}; };
  if (!layout.problem().empty()) return wrong(layout.problem());
  if (!layout.is_read()) return wrong("has a bracket that was not opened");
  std::vector<int64_t> stages = {0};
  for (const char c : unfolded) {
    if (c == '|') {
      stages.push_back(0);
    } else if (c == 't') {
      ++stages.back();
    } else if (c != 'E' && c != 'L') {
      return wrong(
          fmt::format("has {}, and only E, t, L, | and how often they repeat are read", in_quotes(std::string(1, c))));
    }
  }
  return stages;
}

std::string megatron_layout(const std::vector<std::vector<int64_t>>& layers) {
  std::vector<std::string> stages;
  for (size_t chunk = 0; chunk < layers.front().size(); ++chunk) {
    for (const auto& rank : layers) stages.push_back(stage_text(rank[chunk]));
  }
  stages.front() = "E" + stages.front();
  stages.back() += "L";
  std::string text;
  for (size_t first = 0; first + 1 < stages.size();) {
    size_t end = first + 1;
    while (end + 1 < stages.size() && stages[end] == stages[first]) ++end;
    text += repeated(stages[first], end - first);
    first = end;
  }
  return text + stages.back();
}

bool is_even(const std::vector<std::vector<int64_t>>& layers) {
  for (const auto& rank : layers) {
    for (const int64_t count : rank) {
      if (count != layers.front().front()) return false;
    }
  }
  return true;
}

}  // namespace weft
