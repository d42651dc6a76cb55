#include "weft/exchange/megatron_layout.h"

#include <fmt/format.h>

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

}  // namespace

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
