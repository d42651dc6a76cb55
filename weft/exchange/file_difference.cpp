#include "weft/exchange/file_difference.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kContextLines = 3;
/// Of the table that aligns lines. Files that differ in more are shown as replaced.
constexpr size_t kMostCells = size_t{4} << 20;

/// Every line with its end, so that a last line without one differs from one that has it.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return lines;
}

struct DiffLine {
  char mark = ' ';  ///< ' ' in both, '-' before only, '+' after only
  std::string_view text;
};

/// The longest list of lines that both have in order; the others are taken out and put in.
void align(const std::vector<std::string_view>& before, const std::vector<std::string_view>& after,
           std::vector<DiffLine>& out) {
  const size_t rows = before.size(), columns = after.size();
  size_t i = 0, j = 0;
  if ((rows + 1) * (columns + 1) <= kMostCells) {
    std::vector<size_t> common((rows + 1) * (columns + 1), 0);
    const auto at = [&](size_t row, size_t column) -> size_t& { return common[row * (columns + 1) + column]; };
    for (size_t row = rows; row-- > 0;) {
      for (size_t column = columns; column-- > 0;) {
        at(row, column) = before[row] == after[column] ? at(row + 1, column + 1) + 1
                                                       : std::max(at(row + 1, column), at(row, column + 1));
      }
    }
    while (i < rows && j < columns) {
      if (before[i] == after[j]) {
        out.push_back({' ', before[i++]});
        ++j;
      } else if (at(i + 1, j) >= at(i, j + 1)) {
        out.push_back({'-', before[i++]});
      } else {
        out.push_back({'+', after[j++]});
      }
    }
  }
  while (i < rows) out.push_back({'-', before[i++]});
  while (j < columns) out.push_back({'+', after[j++]});
}

std::vector<DiffLine> aligned(const std::vector<std::string_view>& before, const std::vector<std::string_view>& after) {
  const size_t shorter = std::min(before.size(), after.size());
  size_t same_first = 0, same_last = 0;
  while (same_first < shorter && before[same_first] == after[same_first]) ++same_first;
  while (same_last < shorter - same_first &&
         before[before.size() - 1 - same_last] == after[after.size() - 1 - same_last])
    ++same_last;
  std::vector<DiffLine> lines;
  for (size_t i = 0; i < same_first; ++i) lines.push_back({' ', before[i]});
  const auto middle = [&](const std::vector<std::string_view>& all) {
    return std::vector<std::string_view>(all.begin() + static_cast<ptrdiff_t>(same_first),
                                         all.end() - static_cast<ptrdiff_t>(same_last));
  };
  align(middle(before), middle(after), lines);
  for (size_t i = before.size() - same_last; i < before.size(); ++i) lines.push_back({' ', before[i]});
  return lines;
}

/// "12,3": the first line of a hunk and how many there are. Of no lines, the one before them is named.
std::string range_text(size_t lines_before, size_t count) {
  if (count == 1) return fmt::format("{}", lines_before + 1);
  return fmt::format("{},{}", count == 0 ? lines_before : lines_before + 1, count);
}

}  // namespace

std::string file_difference(const std::string& name, std::string_view before, std::string_view after) {
  if (before == after) return "";
  const std::vector<DiffLine> lines = aligned(lines_of(before), lines_of(after));
  const std::string shown = printable_line(name);
  std::string text = fmt::format("--- {}\n+++ {}\n", shown, shown);
  size_t begin = 0, old_line = 0, new_line = 0;  // lines before `begin`
  while (true) {
    size_t change = begin;
    while (change < lines.size() && lines[change].mark == ' ') ++change;
    if (change == lines.size()) break;
    // A hunk ends where more lines are the same than two contexts have.
    size_t end = change + 1, same = 0;
    for (size_t i = end; i < lines.size() && same <= 2 * kContextLines; ++i) {
      same = lines[i].mark == ' ' ? same + 1 : 0;
      if (same == 0) end = i + 1;
    }
    const size_t first = std::max(begin, change - std::min(change, kContextLines));
    const size_t last = std::min(lines.size(), end + kContextLines);
    old_line += first - begin, new_line += first - begin;
    size_t old_count = 0, new_count = 0;
    std::string body;
    for (size_t i = first; i < last; ++i) {
      old_count += lines[i].mark != '+';
      new_count += lines[i].mark != '-';
      body += lines[i].mark;
      body += lines[i].text;
      if (!lines[i].text.ends_with('\n')) body += "\n\\ No newline at end of file\n";
    }
    text += fmt::format("@@ -{} +{} @@\n{}", range_text(old_line, old_count), range_text(new_line, new_count), body);
    old_line += old_count, new_line += new_count;
    begin = last;
  }
  return text;
}

}  // namespace weft
