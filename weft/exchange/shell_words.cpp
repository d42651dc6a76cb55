#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

/// What no script exceeds: letters of all variables that are copied or expanded, and blocks in blocks.
constexpr size_t kMostWork = size_t{1} << 26;
constexpr int kDeepest = 100;

bool is_name_letter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

bool ends_word(char c) {
  return c == '\0' || std::string_view(" \t\n\r;&|()<>").find(c) != std::string_view::npos;
}

MarkedText& open_field(std::vector<MarkedText>& fields, bool& is_open) {
  if (!is_open) fields.emplace_back();
  is_open = true;
  return fields.back();
}

}  // namespace

MarkedText MarkedText::not_known(std::string why, char hole) {
  MarkedText text;
  text.add(hole, {});
  text.unknown = std::move(why);
  return text;
}

void MarkedText::add(const MarkedText& other) {
  is_unset = text.empty() && unknown.empty() && other.is_unset;
  text += other.text;
  places.insert(places.end(), other.places.begin(), other.places.end());
  if (unknown.empty()) unknown = other.unknown;
}

char ShellReader::next() {
  const char c = peek();
  if (at_ < text_.size()) ++at_;
  if (c == '\n') ++line_;
  return c;
}

void ShellReader::fail(Place place, std::string problem, std::string advice) {
  if (error_) return;
  error_ = Error{.source = files_[place.file].name,
                 .field = fmt::format("line {}", place.line),
                 .problem = std::move(problem),
                 .advice = std::move(advice)};
}

bool ShellReader::goes_deeper() {
  if (++depth_ > kDeepest)
    fail(here(), fmt::format("has more than {} blocks or brackets inside each other", kDeepest),
         "Give the arguments as one line.");
  if (work_ > kMostWork) fail(here(), "is larger than scripts are", "Give the arguments as one line.");
  return !error_;
}

bool ShellReader::take(std::string_view text) {
  if (text_.substr(std::min(at_, text_.size()), text.size()) != text) return false;
  for (size_t i = 0; i < text.size(); ++i) next();
  return true;
}

void ShellReader::skip_blanks() {
  while (!is_over()) {
    if (peek() == ' ' || peek() == '\t' || peek() == '\r') {
      next();
    } else if (peek() == '\\' && peek(1) == '\n') {
      take("\\\n");
    } else if (peek() == '\\' && peek(1) == '\r' && peek(2) == '\n') {
      take("\\\r\n");
    } else if (peek() == '#' && (at_ == 0 || ends_word(text_[at_ - 1]))) {
      while (!is_over() && peek() != '\n') next();
    } else {
      return;
    }
  }
}

bool ShellReader::has_word() {
  skip_blanks();
  return !is_over() && !ends_word(peek());
}

std::string ShellReader::bare_word() const {
  size_t end = at_;
  while (end < text_.size() && !ends_word(text_[end])) ++end;
  return std::string(text_.substr(at_, end - at_));
}

bool ShellReader::take_keyword(std::string_view word) {
  skip_blanks();
  return bare_word() == word && take(word);
}

std::vector<MarkedText> ShellReader::word() {
  std::vector<MarkedText> fields;
  bool is_open = false;
  while (!is_over() && !ends_word(peek())) {
    if (peek() == '\\' && peek(1) == '\n') {
      take("\\\n");
      continue;
    }
    word_part(fields, is_open, /*is_quoted=*/false);
  }
  return fields;
}

void ShellReader::word_part(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted) {
  const Place place = here();
  const char c = peek();
  if (c == '\'' && !is_quoted) {
    next();
    MarkedText& field = open_field(fields, is_open);
    while (!is_over() && peek() != '\'') {
      const Place at = here();
      field.add(next(), at);
    }
    if (!take("'")) fail(place, "a quote ' is not closed", "Close it.");
  } else if (c == '"') {
    next();
    double_quotes(fields, is_open);
    if (!take("\"")) fail(place, "a quote \" is not closed", "Close it.");
  } else if (c == '$' || c == '`') {
    expansion(fields, is_open, is_quoted);
  } else if (c == '\\' && !is_quoted) {
    next();
    open_field(fields, is_open).add(next(), place);
  } else {
    open_field(fields, is_open).add(next(), place);
  }
}

void ShellReader::double_quotes(std::vector<MarkedText>& fields, bool& is_open) {
  open_field(fields, is_open);
  while (!is_over() && peek() != '"') {
    const Place place = here();
    if (peek() == '\\' && peek(1) == '\n') {
      take("\\\n");
    } else if (peek() == '\\' && std::string_view("$`\"\\").find(peek(1)) != std::string_view::npos &&
               peek(1) != '\0') {
      next();
      open_field(fields, is_open).add(next(), place);
    } else if (peek() == '$' || peek() == '`') {
      expansion(fields, is_open, /*is_quoted=*/true);
    } else {
      open_field(fields, is_open).add(next(), place);
    }
  }
}

void ShellReader::append(const ShellValue& value, bool is_split, bool keeps_items, std::vector<MarkedText>& fields,
                         bool& is_open) {
  if (is_dry_) return;
  if (!value.unknown.empty()) {
    open_field(fields, is_open).add(MarkedText::not_known(value.unknown));
    return;
  }
  bool is_first = true;
  for (const MarkedText& item : value.items) {
    work_ += item.text.size() + 1;
    if (!is_first && (keeps_items || is_split)) is_open = false;
    if (!is_first && !keeps_items && !is_split) open_field(fields, is_open).add(' ', here());
    is_first = false;
    if (!is_split || item.is_unset) {
      open_field(fields, is_open).add(item);
      continue;
    }
    for (size_t i = 0; i < item.text.size(); ++i) {
      const char c = item.text[i];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        is_open = false;
      } else {
        MarkedText& field = open_field(fields, is_open);
        field.add(c, item.places[i]);
        const bool is_hole = c == MarkedText::kHole || c == MarkedText::kUnset;
        if (is_hole && field.unknown.empty()) field.unknown = item.unknown;
        field.is_unset = c == MarkedText::kUnset && field.text.size() == 1;
      }
    }
  }
  if (work_ > kMostWork) fail(here(), "its variables grow beyond what scripts hold", "Give the arguments as one line.");
}

std::string ShellReader::skip_command(char end) {
  const Place begin = here();
  if (!goes_deeper()) return "";
  skip_blanks();
  std::string name = bare_word();
  name.resize(std::min(name.size(), name.find(end)));
  int open = 0;
  while (!is_over() && !(open == 0 && peek() == end)) {
    const char c = next();
    if (c == '\\') next();
    if (c == '\'') {
      while (!is_over() && peek() != '\'') next();
      next();
    }
    if (c == '"') {
      while (!is_over() && peek() != '"') {
        const char inner = next();
        if (inner == '\\') next();
        if (inner == '$' && peek() == '(') {
          next();
          skip_command(')');
        }
      }
      next();
    }
    if (end == ')' && c == '(') ++open;
    if (end == ')' && c == ')') --open;
  }
  --depth_;
  if (!take(std::string_view(&end, 1)))
    fail(begin, fmt::format("a command in {} is not closed", end == ')' ? "$(" : "`"), "Close it.");
  return printable(name);
}

ShellValue ShellReader::value_of(const std::string& name, Place place) const {
  if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
  if (name == "#" || name == "@" || name == "*") {
    ShellValue all{.is_array = name != "#"};
    for (int i = 1; variables_.contains(std::to_string(i)); ++i) {
      const std::vector<MarkedText>& items = variables_.find(std::to_string(i))->second.items;
      all.items.push_back(items.empty() ? MarkedText() : items.front());
    }
    if (name != "#") return all;
    MarkedText count;
    count.add(std::to_string(all.items.size()), {file_, 0});
    return {.items = {count}};
  }
  MarkedText text = MarkedText::not_known(
      sourced_.empty() ? fmt::format("the variable {}, which line {} uses and nothing sets", name, place.line)
                       : fmt::format("the variable {}, which line {} uses and {} may set", name, place.line, sourced_),
      sourced_.empty() ? MarkedText::kUnset : MarkedText::kHole);
  text.is_unset = sourced_.empty();
  return {.items = {text}};
}

ShellValue ShellReader::braces() {
  const Place place = here();
  const auto unread = [&]() -> ShellValue {
    int open = 0;
    while (!is_over() && !(open == 0 && peek() == '}')) {
      const char c = next();
      if (c == '\\') next();
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
    }
    if (!take("}")) fail(place, "${ is not closed", "Close it with }.");
    return {.items = {MarkedText::not_known(
                fmt::format("an expansion ${{...}} of a kind that is not read, in line {}", place.line))}};
  };
  if (peek() == '!' || (peek() == '#' && peek(1) != '}')) return unread();
  std::string name;
  if (std::string_view("@*#?$!-").find(peek()) != std::string_view::npos && peek() != '\0') {
    name = next();
  } else {
    while (is_name_letter(peek())) name += next();
  }
  if (name.empty()) return unread();
  std::optional<std::string> index;
  if (peek() == '[') {
    next();
    index.emplace();
    while (!is_over() && peek() != ']' && peek() != '}') *index += next();
    if (!take("]")) return unread();
  }
  ShellValue value = value_of(name, place);
  const bool is_set = variables_.contains(name);
  if (index && *index != "@" && *index != "*") {
    size_t number = 0;
    const bool is_number = !index->empty() && index->size() < 7 &&
                           std::all_of(index->begin(), index->end(), [](unsigned char c) { return std::isdigit(c); });
    if (is_number) number = std::stoul(*index);
    if (!value.unknown.empty() || !is_number || number >= value.items.size()) {
      value = {.items = {MarkedText::not_known(
                   fmt::format("the item {} of {} in line {}", printable(*index), name, place.line))}};
    } else {
      value = {.items = {value.items[number]}};
    }
  } else if (!index && value.is_array && name != "@" && name != "*") {
    value.is_array = false;  // a plain ${NAME} is the first item
    if (value.items.size() > 1) value.items.resize(1);
  }
  if (take("}")) return value;
  const bool has_colon = peek() == ':';
  const char op = peek(has_colon ? 1 : 0);
  if (std::string_view("-=+?").find(op) == std::string_view::npos || op == '\0') return unread();
  if (has_colon) next();
  next();
  std::vector<MarkedText> fields;
  bool is_open = false;
  if (!goes_deeper()) return value;
  while (!is_over() && peek() != '}') {
    if (peek() == ' ' || peek() == '\n' || peek() == '\t') {
      const Place at = here();
      open_field(fields, is_open).add(next(), at);
    } else {
      word_part(fields, is_open, /*is_quoted=*/false);
    }
  }
  --depth_;
  if (!take("}")) fail(place, "${ is not closed", "Close it with }.");
  ShellValue other{.items = {MarkedText{}}};
  for (const MarkedText& field : fields) other.items.front().add(field);
  const bool is_empty =
      value.unknown.empty() && value.items.size() <= 1 && (value.items.empty() || value.items.front().text.empty());
  // A variable that nothing sets here is taken not to be set outside either.
  const bool is_missing = !is_set || (has_colon && is_empty);
  if (op == '+') return is_missing ? ShellValue{.items = {MarkedText{}}} : other;
  if (!is_missing || op == '?') return value;
  if (op == '=' && !is_dry_) variables_[name] = other;
  return other;
}

void ShellReader::expansion(std::vector<MarkedText>& fields, bool& is_open, bool is_quoted) {
  const Place place = here();
  const auto add = [&](const ShellValue& value, bool keeps_items = false) {
    append(value, !is_quoted, keeps_items, fields, is_open);
  };
  if (take("`")) {
    const std::string name = skip_command('`');
    return add({.items = {MarkedText::not_known(fmt::format("the command {} in line {}", name, place.line))}});
  }
  next();  // the dollar
  if (take("((")) {
    if (!goes_deeper()) return;
    const MarkedText value = arithmetic("))");
    --depth_;
    return add({.items = {value}});
  }
  if (take("(")) {
    const std::string name = skip_command(')');
    return add({.items = {MarkedText::not_known(fmt::format("the command {} in line {}", name, place.line))}});
  }
  if (take("{")) {
    const bool is_all =
        text_.substr(at_, text_.find('}', at_) - at_).find("[@]") != std::string_view::npos || peek() == '@';
    return add(braces(), is_all);
  }
  if (peek() == '\'' || (peek() == '"' && !is_quoted)) return word_part(fields, is_open, is_quoted && peek() != '\'');
  std::string name;
  if (std::isdigit(static_cast<unsigned char>(peek())) ||
      (std::string_view("@*#?$!-").find(peek()) != std::string_view::npos && peek() != '\0')) {
    name = next();
  } else {
    while (is_name_letter(peek())) name += next();
  }
  if (name.empty()) {
    open_field(fields, is_open).add('$', place);
    return;
  }
  ShellValue value = value_of(name, place);
  if (value.is_array && name != "@" && name != "*" && value.items.size() > 1) value.items.resize(1);
  add(value, name == "@");
}

void ShellReader::redirection() {
  std::string op;
  while (peek() == '<' || peek() == '>' || peek() == '&' || peek() == '|') op += next();
  if (peek() == '(') {
    next();
    skip_command(')');
    return;
  }
  const bool drops_tabs = op == "<<" && peek() == '-';
  if (drops_tabs) next();
  if (!has_word()) return;
  std::vector<MarkedText> target = word();
  if (op == "<<" && !target.empty()) pending_documents_.emplace_back(target.front().text, drops_tabs);
}

void ShellReader::here_documents() {
  for (const auto& [end, drops_tabs] : pending_documents_) {
    while (!is_over()) {
      std::string line;
      while (!is_over() && peek() != '\n') line += next();
      next();
      if (drops_tabs) line.erase(0, line.find_first_not_of('\t'));
      if (line == end) break;
    }
  }
  pending_documents_.clear();
}

}  // namespace weft
