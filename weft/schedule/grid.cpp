#include "weft/schedule/grid.h"

#include <algorithm>

#include <fmt/format.h>

namespace weft {

std::string row_grid(const Schedule& schedule, int32_t marked_rank, size_t marked_position) {
  constexpr size_t kBefore = 5;
  constexpr size_t kShown = 11;
  const size_t first = marked_position > kBefore ? marked_position - kBefore : 0;
  size_t width = 4;
  for (const auto& row : schedule.rows) {
    for (size_t i = first; i < std::min(first + kShown, row.size()); ++i)
      width = std::max(width, to_text(row[i]).size());
  }
  std::string text;
  for (int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& row = schedule.rows[static_cast<size_t>(rank)];
    text += fmt::format("{:>6}  {}", fmt::format("r{}", rank), first > 0 ? "... " : "");
    for (size_t i = first; i < first + kShown; ++i) {
      const bool is_marked = rank == marked_rank && i == marked_position;
      const std::string word = i < row.size() ? to_text(row[i]) : is_marked ? "?" : "";
      text += fmt::format("{}{:<{}}{}", is_marked ? '>' : ' ', word, width, is_marked ? '<' : ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace weft
