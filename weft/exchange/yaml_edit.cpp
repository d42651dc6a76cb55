#include "weft/exchange/yaml_edit.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace weft {
namespace {

/// A line "key: value" of a block, with the keys of the sections around it.
struct YamlEntry {
  size_t line = 0;
  size_t indent = 0;
  size_t value = 0;               ///< where what stands behind the colon begins
  std::vector<std::string> path;  ///< its own key last
  size_t last_line = 0;           ///< of the section that it heads, or its own
  size_t child_indent = 0;        ///< of what the section holds; 0: nothing
  bool holds_list = false;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// The key of a line and where its value begins.
std::optional<std::pair<std::string, size_t>> key_of(const std::string& line, size_t indent) {
  const char quote = line[indent] == '"' || line[indent] == '\'' ? line[indent] : '\0';
  const size_t begin = indent + (quote != '\0' ? 1 : 0);
  const size_t end = quote != '\0' ? line.find(quote, begin) : line.find(':', begin);
  if (end == std::string::npos || end == begin) return std::nullopt;
  const size_t colon = quote != '\0' ? end + 1 : end;
  if (colon >= line.size() || line[colon] != ':') return std::nullopt;
  if (colon + 1 < line.size() && line[colon + 1] != ' ') return std::nullopt;
  return std::pair{line.substr(begin, end - begin), std::min(colon + 2, line.size())};
}

std::vector<YamlEntry> entries_of(const std::vector<std::string>& lines) {
  std::vector<YamlEntry> entries;
  std::vector<size_t> open;           // entries around the current line, the innermost last
  std::vector<size_t> list_indents;   // of list items around it
  std::optional<size_t> text_indent;  // of a key whose value is a text over several lines
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos) continue;
    if (text_indent && indent > *text_indent) continue;
    text_indent.reset();
    if (line[indent] == '#') continue;
    const bool is_item = line[indent] == '-' && (indent + 1 == line.size() || line[indent + 1] == ' ');
    while (!open.empty() &&
           (entries[open.back()].indent > indent || (entries[open.back()].indent == indent && !is_item)))
      open.pop_back();
    while (!list_indents.empty() && (list_indents.back() > indent || (list_indents.back() == indent && !is_item)))
      list_indents.pop_back();
    for (const size_t around : open) entries[around].last_line = i;
    if (is_item) {
      if (!open.empty()) entries[open.back()].holds_list = true;
      if (list_indents.empty() || list_indents.back() < indent) list_indents.push_back(indent);
      continue;
    }
    const auto key = key_of(line, indent);
    // What lies in a list has no path.
    if (!key || !list_indents.empty()) continue;
    YamlEntry entry{.line = i, .indent = indent, .value = key->second, .path = {}, .last_line = i};
    if (!open.empty()) {
      entry.path = entries[open.back()].path;
      if (entries[open.back()].child_indent == 0) entries[open.back()].child_indent = indent;
    }
    entry.path.push_back(key->first);
    const std::string_view value = std::string_view(line).substr(entry.value);
    const size_t first = value.find_first_not_of(' ');
    if (first != std::string_view::npos && (value[first] == '|' || value[first] == '>')) text_indent = indent;
    open.push_back(entries.size());
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// Of keys that stand twice the last one counts.
const YamlEntry* find(const std::vector<YamlEntry>& entries, const std::vector<std::string>& path) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->path == path) return &*entry;
  }
  return nullptr;
}

/// Where a value that begins in a line ends: before a comment, or where the line does.
size_t end_of_value(const std::string& line, size_t begin) {
  char quote = '\0';
  size_t end = line.size();
  for (size_t i = begin; i < line.size(); ++i) {
    if (quote != '\0') {
      if (line[i] == quote) quote = '\0';
    } else if (line[i] == '"' || line[i] == '\'') {
      quote = line[i];
    } else if (line[i] == '#' && (i == begin || line[i - 1] == ' ')) {
      end = i;
      break;
    }
  }
  while (end > begin && (line[end - 1] == ' ' || line[end - 1] == '\r')) --end;
  return end;
}

/// A person who writes True goes on with True.
std::string in_the_style_of(std::string_view old, std::string value) {
  const bool is_word = !value.empty() && std::isalpha(static_cast<unsigned char>(value[0])) != 0;
  const bool is_truth = old == "True" || old == "False";
  if (is_word && is_truth && (value == "true" || value == "false"))
    value[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(value[0])));
  return value;
}

bool is_in_one_line(std::string_view value) {
  if (value.empty()) return true;
  if (value.front() == '[') return value.back() == ']';
  if (value.front() == '"' || value.front() == '\'') return value.size() > 1 && value.back() == value.front();
  return value.front() != '{' && value.front() != '&' && value.front() != '*' && value.front() != '!' &&
         value.front() != '|' && value.front() != '>';
}

/// "{a: 1, b: 2}" with another value of one of its keys, or with one more.
std::optional<std::string> with_flow_value(const std::string& map, const std::string& key, const std::string& value) {
  if (map.size() < 2 || map.front() != '{' || map.back() != '}') return std::nullopt;
  if (map.find_first_of("{[\"'#", 1) != std::string::npos) return std::nullopt;
  for (size_t begin = 1; begin < map.size();) {
    const size_t end = std::min(map.find(',', begin), map.size() - 1);
    const size_t first = map.find_first_not_of(' ', begin);
    const size_t colon = map.find(':', begin);
    if (first < end && colon < end && map.substr(first, colon - first) == key)
      return fmt::format("{} {}{}", map.substr(0, colon + 1), value, map.substr(end));
    begin = end + 1;
  }
  const bool is_empty = map.find_first_not_of(' ', 1) == map.size() - 1;
  return fmt::format("{}{}{}: {}}}", map.substr(0, map.size() - 1), is_empty ? "" : ", ", key, value);
}

}  // namespace

std::optional<std::string> with_yaml_value(const std::string& text, const std::vector<std::string>& path,
                                           const std::string& value) {
  std::vector<std::string> lines = split_lines(text);
  const std::vector<YamlEntry> entries = entries_of(lines);
  if (const YamlEntry* entry = find(entries, path)) {
    std::string& line = lines[entry->line];
    const size_t end = end_of_value(line, entry->value);
    size_t begin = entry->value;
    // An anchor stays: others have the new value, too.
    if (begin < end && line[begin] == '&') begin = std::min(line.find(' ', begin), end - 1) + 1;
    const std::string old = line.substr(begin, end - begin);
    if (!is_in_one_line(old) || entry->last_line != entry->line) return std::nullopt;
    line.replace(begin, end - begin, (line.ends_with(':') ? " " : "") + in_the_style_of(old, value));
    return joined(lines);
  }
  // The innermost section of the path that is there.
  std::vector<std::string> around = path;
  const YamlEntry* section = nullptr;
  while (section == nullptr && around.size() > 1) {
    around.pop_back();
    section = find(entries, around);
  }
  size_t indent = 0, after = lines.size(), depth = 0;
  if (section != nullptr) {
    std::string& line = lines[section->line];
    const size_t end = end_of_value(line, section->value);
    const std::string held = line.substr(section->value, end - section->value);
    if (held.starts_with('{') && around.size() + 1 == path.size()) {
      const auto map = with_flow_value(held, path.back(), value);
      if (!map) return std::nullopt;
      line.replace(section->value, end - section->value, *map);
      return joined(lines);
    }
    const bool is_section = held.empty() || (held.starts_with('&') && held.find(' ') == std::string::npos);
    if (!is_section || section->holds_list) return std::nullopt;
    indent = section->child_indent > 0 ? section->child_indent : section->indent + 2;
    after = section->last_line + 1;
    depth = around.size();
  } else {
    while (after > 0 && lines[after - 1].find_first_not_of(' ') == std::string::npos) --after;
  }
  std::vector<std::string> added;
  for (size_t i = depth; i < path.size(); ++i) {
    added.push_back(fmt::format("{}{}:{}{}", std::string(indent, ' '), path[i], i + 1 == path.size() ? " " : "",
                                i + 1 == path.size() ? value : ""));
    indent += 2;
  }
  lines.insert(lines.begin() + static_cast<ptrdiff_t>(after), added.begin(), added.end());
  return joined(lines);
}

std::optional<std::string> without_yaml_value(const std::string& text, const std::vector<std::string>& path) {
  std::vector<std::string> lines = split_lines(text);
  const std::vector<YamlEntry> entries = entries_of(lines);
  const YamlEntry* entry = find(entries, path);
  if (entry == nullptr || entry->last_line != entry->line) return std::nullopt;
  const std::string& line = lines[entry->line];
  const size_t end = end_of_value(line, entry->value);
  if (!is_in_one_line(line.substr(entry->value, end - entry->value))) return std::nullopt;
  lines.erase(lines.begin() + static_cast<ptrdiff_t>(entry->line));
  return joined(lines);
}

}  // namespace weft
