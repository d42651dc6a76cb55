#include "weft/schedule/csv.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/schedule/parse_rows.h"

namespace weft {

std::string to_csv(const Schedule& schedule) {
  std::string text;
  for (const auto& row : schedule.rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += to_text(row[i]);
    }
    text += '\n';
  }
  return text;
}

Result<Schedule> parse_csv(std::string_view text, const std::string& source) {
  const size_t last = text.find_last_not_of(" \t\r\n\",");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  std::vector<std::string_view> lines;
  while (!text.empty() && lines.size() <= kMostRows) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  Result<Schedule> schedule = parse_rows(lines, {.separator = ',', .place = [](size_t row, std::optional<size_t> cell) {
                                                   return cell ? fmt::format("line {}, cell {}", row + 1, *cell + 1)
                                                               : fmt::format("line {}", row + 1);
                                                 }});
  if (schedule) return schedule;
  Error error = schedule.error();
  error.source = source;
  return error;
}

}  // namespace weft
