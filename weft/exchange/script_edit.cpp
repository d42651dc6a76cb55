#include "weft/exchange/script_edit.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace weft {
namespace {

bool is_word_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
}

/// Where the comment of the line from `begin` to `end` starts: at a '#' behind a blank; at its end where it has none.
size_t comment_begin(const std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (text[i] == '#' && (i == begin || std::isspace(static_cast<unsigned char>(text[i - 1])) != 0)) return i;
  }
  return end;
}

/// Where the last `--key` begins. Dashes inside of it may be underscores.
std::optional<size_t> last_key(const std::string& text, const std::string& key) {
  std::string dashes = text;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  const std::string word = "--" + key;
  std::optional<size_t> last;
  // From the front, so that every line is looked at once, however often the key stands in it.
  size_t line_end = 0, comment = 0;
  for (size_t at = dashes.find(word); at != std::string::npos; at = dashes.find(word, at + 1)) {
    if (at >= line_end) {
      const size_t before = text.rfind('\n', at);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      line_end = std::min(text.find('\n', at), text.size());
      comment = comment_begin(text, begin, line_end);
    }
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_word_letter(text[at - 1]);
    const bool ends = end == text.size() || !is_word_letter(text[end]);
    if (begins && ends && at < comment) last = at;
  }
  return last;
}

/// Where a word of a shell ends: spaces in quotes, ${...}, $(...) and $((...)) belong to it.
size_t end_of_word(const std::string& text, size_t at) {
  size_t depth = 0;
  char quote = '\0';
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (depth > 0) {
      if (c == '(' || c == '{') ++depth;
      if (c == ')' || c == '}') --depth;
    } else if (c == '$' && at + 1 < text.size() && (text[at + 1] == '(' || text[at + 1] == '{')) {
      ++at;
      depth = 1;
    } else if (quote != '\0') {
      if (c == quote) quote = '\0';
    } else if (c == '\'') {
      quote = c;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '"' || c == ')' || c == ';' || c == '|' ||
               c == '&' || c == '\\') {
      break;
    }
  }
  return at;
}

/// Where the value of the key that ends there begins; nothing where the line has none.
std::optional<size_t> value_behind(const std::string& text, size_t at) {
  if (at < text.size() && text[at] == '=') return at + 1;
  const size_t begin = text.find_first_not_of(" \t", at);
  if (begin == std::string::npos || begin == at) return std::nullopt;
  const bool is_other =
      text.compare(begin, 2, "--") == 0 || std::string_view("\n\\\"')#;|&").find(text[begin]) != std::string_view::npos;
  return is_other ? std::nullopt : std::optional(begin);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Where a value stands alone in a line, from some place on; letters' case does not matter.
size_t find_value(const std::string& line, const std::string& value, size_t from) {
  const std::string hay = lower(line), needle = lower(value);
  const auto is_letter = [](char c) { return is_word_letter(c) && c != '-'; };
  for (size_t at = hay.find(needle, from); at != std::string::npos; at = hay.find(needle, at + 1)) {
    const bool begins = at == 0 || !is_letter(line[at - 1]) || !is_letter(value.front());
    const size_t end = at + value.size();
    const bool ends = end == line.size() || !is_letter(line[end]) || !is_letter(value.back());
    if (begins && ends) return at;
  }
  return std::string::npos;
}

}  // namespace

std::optional<std::string> with_value_in_line(const std::string& text, uint32_t line_number, const std::string& key,
                                              const std::string& before, const std::string& after) {
  if (line_number == 0 || before.empty() || after.empty()) return std::nullopt;
  size_t begin = 0;
  for (uint32_t line = 1; line < line_number; ++line) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return std::nullopt;
    ++begin;
  }
  const size_t end = std::min(text.find('\n', begin), text.size());
  std::string line = text.substr(begin, end - begin);
  std::string dashes = line;
  std::replace(dashes.begin(), dashes.end(), '_', '-');
  std::string name = key.substr(key.rfind('.') + 1);
  std::replace(name.begin(), name.end(), '_', '-');
  size_t from = dashes.find(name);
  from = from == std::string::npos ? line.find('=') : from + name.size();
  const size_t at = find_value(line, before, from == std::string::npos ? 0 : from);
  if (at == std::string::npos) return std::nullopt;
  std::string value = after;
  const bool has_capital = std::isupper(static_cast<unsigned char>(line[at])) != 0;
  if (has_capital) value[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(value[0])));
  line.replace(at, before.size(), value);
  return text.substr(0, begin) + line + text.substr(end);
}

std::optional<std::string> with_argument(const std::string& text, const std::string& key, const std::string& value) {
  const auto at = last_key(text, key);
  if (!at) return std::nullopt;
  const auto begin = value_behind(text, *at + 2 + key.size());
  if (!begin) return std::nullopt;
  return text.substr(0, *begin) + value + text.substr(end_of_word(text, *begin));
}

std::optional<std::string> with_new_argument(const std::string& text, const std::string& beside, const std::string& key,
                                             const std::string& value) {
  const auto at = last_key(text, beside);
  if (!at) return std::nullopt;
  return fmt::format("{}--{}{}{} {}", text.substr(0, *at), key, value.empty() ? "" : " ", value, text.substr(*at));
}

std::optional<std::string> without_argument(const std::string& text, const std::string& key, bool has_value) {
  const auto at = last_key(text, key);
  if (!at) return std::nullopt;
  size_t end = *at + 2 + key.size();
  if (has_value) {
    const auto begin = value_behind(text, end);
    if (!begin) return std::nullopt;
    end = end_of_word(text, *begin);
  }
  // A space goes with it, so that none is left at the end of a line or two between its neighbours.
  size_t begin = *at;
  if (begin > 0 && text[begin - 1] == ' ' && (end == text.size() || text[end] == ' ' || text[end] == '\n')) {
    const bool is_first = text.find_last_not_of(' ', begin - 1) == std::string::npos ||
                          text[text.find_last_not_of(' ', begin - 1)] == '\n';
    if (!is_first) {
      --begin;
    } else if (end < text.size() && text[end] == ' ') {
      ++end;
    }
  }
  return text.substr(0, begin) + text.substr(end);
}

}  // namespace weft
