#include "weft/cli/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

void Table::add(std::vector<std::string> cells) {
  // A cell is as long as it is, but for one that would fill a screen.
  constexpr size_t kLongest = 2000;
  for (std::string& cell : cells) {
    if (!is_printable(cell)) cell = printable(cell, kLongest);
  }
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;

  std::string text;
  for (const auto& row : rows_) {
    if (row.empty()) {
      text += std::string(total - 2, '-') + "\n";
      continue;
    }
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace weft
