#include "weft/exchange/key_lines.h"

#include <algorithm>
#include <iterator>
#include <optional>

namespace weft {
namespace {

constexpr uint32_t kNoLine = UINT32_MAX;

/// A line with more than a comment.
struct TextLine {
  uint32_t number = 0;
  size_t indent = 0;
  std::optional<std::string_view> key;
  bool ends_blocks = false;  ///< of keys that stand as far in, or further
  uint32_t block_end = kNoLine;
};

/// What stands before a line's first colon, without quotes. A key that has a colon itself is not found by its name.
std::optional<std::string_view> key_before_colon(std::string_view content) {
  content.remove_prefix(content.find_first_not_of(" \t\"'"));
  const size_t colon = content.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const size_t last = content.find_last_not_of("\"' \t", colon == 0 ? 0 : colon - 1);
  if (colon == 0 || last == std::string_view::npos) return std::nullopt;
  return content.substr(0, last + 1);
}

/// Members of a JSON object may stand anywhere, and brackets alone say nothing.
bool ends_blocks(std::string_view content, size_t indent) {
  return content[indent] != '"' && content.find('{') == std::string_view::npos &&
         content.find_first_not_of(" \t}],") != std::string_view::npos;
}

std::vector<TextLine> text_lines_of(std::string_view text) {
  std::vector<TextLine> lines;
  uint32_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view content = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = content.find_first_not_of(" \t-\"'");
    if (first == std::string_view::npos || content[first] == '#') continue;
    const size_t indent = content.find_first_not_of(" \t");
    lines.push_back({.number = number,
                     .indent = indent,
                     .key = key_before_colon(content),
                     .ends_blocks = ends_blocks(content, indent)});
  }
  return lines;
}

/// From the last line to the first. Of the lines below, those are kept that end a block which no nearer one ends.
void find_block_ends(std::vector<TextLine>& lines) {
  std::vector<const TextLine*> endings;  // the nearest last, and furthest in
  for (size_t i = lines.size(); i-- > 0;) {
    TextLine& line = lines[i];
    const auto after = std::partition_point(endings.begin(), endings.end(),
                                            [&](const TextLine* ending) { return ending->indent <= line.indent; });
    if (after != endings.begin()) line.block_end = (*std::prev(after))->number;
    if (!line.ends_blocks) continue;
    while (!endings.empty() && endings.back()->indent >= line.indent) endings.pop_back();
    endings.push_back(&line);
  }
}

}  // namespace

KeyLines::KeyLines(std::string_view text) {
  std::vector<TextLine> lines = text_lines_of(text);
  find_block_ends(lines);
  for (const TextLine& line : lines) {
    if (!line.key) continue;
    lines_[*line.key].push_back({line.number, line.indent, line.block_end});
    aligned_[{*line.key, line.indent}].push_back(line.number);
  }
}

uint32_t KeyLines::line_of(const std::vector<std::string>& path) const {
  uint32_t begin = 0, end = kNoLine;
  for (size_t depth = 0; depth < path.size(); ++depth) {
    const auto found = lines_.find(path[depth]);
    if (found == lines_.end()) return 0;
    const std::vector<Line>& lines = found->second;
    const auto is_before = [](const Line& line, uint32_t number) { return line.number < number; };
    const auto first = std::lower_bound(lines.begin(), lines.end(), begin, is_before);
    if (first == lines.end() || first->number >= end) return 0;
    if (depth + 1 < path.size()) {
      begin = first->number + 1;
      end = first->block_end;
      continue;
    }
    // Others of the name that stand further in are of other blocks.
    const std::vector<uint32_t>& numbers = aligned_.at({path[depth], first->indent});
    return *std::prev(std::lower_bound(numbers.begin(), numbers.end(), end));
  }
  return 0;
}

}  // namespace weft
