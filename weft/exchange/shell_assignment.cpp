#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_reader.h"

// NAME=..., NAME+=... and NAME[...]=...
namespace weft {
namespace {

/// Letters of NAME[...] in front of an '='. They are looked for at every word, and may go on to the end of the file.
constexpr size_t kLongestIndex = 128;

/// How many letters of NAME=, NAME+= or NAME[...]= stand at the beginning; 0 where it is no assignment.
size_t assignment_length(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_name_letter(text[end])) ++end;
  if (!is_variable_name(text.substr(0, end))) return 0;
  if (end < text.size() && text[end] == '[') {
    const size_t last = std::min(text.size(), end + kLongestIndex);
    while (end < last && text[end] != ']' && text[end] != '\n') ++end;
    if (end == last || text[end] != ']') return 0;
    ++end;
  }
  if (text.substr(end).starts_with("+=")) return end + 2;
  return text.substr(end).starts_with("=") ? end + 1 : 0;
}

bool is_blank(const MarkedText& text) {
  return text.unknown.empty() && text.text.find_first_not_of(" \t\n") == std::string::npos;
}

}  // namespace

bool ShellReader::take_assignment(bool is_integer) {
  const size_t length = assignment_length(text_.substr(at_));
  if (length == 0) return false;
  std::string name(text_.substr(at_, length));
  take(name);
  name.pop_back();
  const bool adds = name.ends_with('+');
  if (adds) name.pop_back();
  const Place place = here();
  ShellValue value;
  const size_t bracket = name.find('[');
  if (peek() == '(') {
    next();
    value.is_array = true;
    while (!is_over()) {
      while (!is_over() && (skip_blanks(), peek() == '\n')) next();
      if (peek() == ')' || is_over()) break;
      const size_t before = at_;
      for (MarkedText& field : word()) value.items.push_back(std::move(field));
      if (at_ == before) next();
    }
    if (!take(")")) fail(place, fmt::format("the list of {} is not closed", printable(name)), "Close it with ).");
  } else {
    value.items = {joined(word(), place)};
  }
  if (is_dry_ || error_) return true;
  if (bracket != std::string::npos) {
    name.resize(bracket);
    set(name, {.is_array = true, .unknown = fmt::format("an item that line {} sets", place.line)});
    return true;
  }
  if (variables_.is_given(name)) return true;
  const ShellValue* mark = variables_.find(integer_mark(name));
  const ShellValue* known = variables_.find(name);
  if ((is_integer || mark != nullptr) && !value.is_array) {
    const bool may_be_none = !is_integer && !mark->unknown.empty();
    value.items.front() = as_integer(value.items.front(), adds ? known : nullptr, may_be_none ? mark->unknown : "");
  } else if (adds && known != nullptr) {
    charge(*known);
    if (error_) return true;
    ShellValue sum = *known;
    if (sum.is_array && value.is_array) {
      sum.items.insert(sum.items.end(), value.items.begin(), value.items.end());
    } else if (!sum.items.empty() && !value.items.empty()) {
      sum.items.front().add(value.items.front());
    }
    if (sum.unknown.empty()) sum.unknown = value.unknown;
    value = std::move(sum);
  }
  if (is_integer) set(integer_mark(name), {});
  set(name, std::move(value));
  return true;
}

MarkedText ShellReader::as_integer(const MarkedText& text, const ShellValue* base, const std::string& doubt) {
  if (!doubt.empty()) {
    // Text and number are the same alone where digits are set.
    const bool is_same =
        base == nullptr && text.unknown.empty() && !text.text.empty() && text.text.front() != '0' &&
        std::all_of(text.text.begin(), text.text.end(), [](unsigned char c) { return std::isdigit(c); });
    return is_same ? text : MarkedText::not_known(doubt);
  }
  if (base != nullptr && !base->unknown.empty()) return MarkedText::not_known(base->unknown);
  MarkedText sum;
  const auto add = [&](const MarkedText& part) {
    charge(part.text.size());
    sum.add('(', here());
    if (is_blank(part)) {
      sum.add('0', here());
    } else if (!error_) {
      sum.add(part);
    }
    sum.add(')', here());
  };
  if (base != nullptr && !base->items.empty()) {
    add(base->items.front());
    sum.add('+', here());
  }
  add(text);
  return arithmetic_of(sum);
}

}  // namespace weft
