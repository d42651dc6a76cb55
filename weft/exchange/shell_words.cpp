#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_pattern.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

/// What no script exceeds: letters of all variables that are copied or expanded, and blocks in blocks. A letter takes
/// up to 20 bytes with its place, so that this many stay below a gigabyte.
constexpr size_t kMostWork = size_t{1} << 25;
constexpr int kDeepest = 100;
/// What a word or a variable costs beside its letters, counted in letters: it takes more than a hundred bytes.
constexpr size_t kWorkOfField = 64;

bool ends_word(char c) {
  return c == '\0' || std::string_view(" \t\n\r;&|()<>").find(c) != std::string_view::npos;
}

/// A number of at most six digits, which no list of a script exceeds.
std::optional<size_t> place_in_list(std::string_view text) {
  const bool is_number = !text.empty() && text.size() <= 6 &&
                         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  return is_number ? std::optional(std::stoul(std::string(text))) : std::nullopt;
}

/// The item of an array; nothing where it is not known.
const MarkedText* item_of(const ShellValue& value, const std::string& index) {
  const auto number = place_in_list(index);
  return number && value.unknown.empty() && *number < value.items.size() ? &value.items[*number] : nullptr;
}

}  // namespace

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
  return !error_;
}

void ShellReader::charge(size_t letters) {
  work_ += letters;
  if (work_ > kMostWork) fail(here(), "its variables grow beyond what scripts hold", "Give the arguments as one line.");
}

void ShellReader::charge(const ShellValue& value) {
  constexpr size_t kWorkOfItem = 16;  // its word was counted when it was read
  size_t letters = kWorkOfField + value.unknown.size();
  for (const MarkedText& item : value.items) letters += item.text.size() + kWorkOfItem;
  charge(letters);
}

MarkedText& ShellReader::open_field(std::vector<MarkedText>& fields, bool& is_open) {
  if (!is_open) {
    charge(kWorkOfField);
    fields.emplace_back();
  }
  is_open = true;
  return fields.back();
}

void ShellReader::add_quoted(MarkedText& field, char letter, Place place) {
  if (is_pattern_ && is_pattern_letter(letter)) field.add('\\', place);
  field.add(letter, place);
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
      add_quoted(field, next(), at);
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
    add_quoted(open_field(fields, is_open), next(), place);
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
      add_quoted(open_field(fields, is_open), next(), place);
    } else if (peek() == '$' || peek() == '`') {
      expansion(fields, is_open, /*is_quoted=*/true);
    } else {
      add_quoted(open_field(fields, is_open), next(), place);
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
    charge(item.text.size() + 1);
    if (error_) return;
    if (!is_first && (keeps_items || is_split)) is_open = false;
    if (!is_first && !keeps_items && !is_split) open_field(fields, is_open).add(' ', here());
    is_first = false;
    if (!is_split || item.is_unset) {
      MarkedText& field = open_field(fields, is_open);
      if (!is_pattern_ || is_split || !item.unknown.empty()) {
        field.add(item);
      } else {
        for (size_t i = 0; i < item.text.size(); ++i) add_quoted(field, item.text[i], item.places[i]);
      }
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
}

std::string ShellReader::skip_command(char end) {
  const Place begin = here();
  if (!goes_deeper()) return "";
  skip_blanks();
  size_t name_end = at_;
  while (name_end < text_.size() && text_[name_end] != end && !ends_word(text_[name_end])) ++name_end;
  const std::string name = printable(text_.substr(at_, name_end - at_));
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
  return name;
}

const ShellValue& ShellReader::value_of(const std::string& name, Place place, ShellValue& own) {
  if (const ShellValue* known = variables_.find(name)) return *known;
  const ShellValue& arguments = *variables_.find(kShellArguments);
  if (name == "*") return arguments;
  const size_t number = place_in_list(name).value_or(0);
  const auto found = [&](MarkedText text) -> const ShellValue& {
    own = {};
    own.items.push_back(std::move(text));
    return own;
  };
  if (name == "#" || number > 0) {
    if (!arguments.unknown.empty()) return found(MarkedText::not_known(arguments.unknown));
    if (number > 0 && number <= arguments.items.size()) {
      charge(arguments.items[number - 1].text.size());
      return found(arguments.items[number - 1]);
    }
  }
  if (name == "#") {
    MarkedText count;
    count.add(std::to_string(arguments.items.size()), {file_, 0});
    return found(std::move(count));
  }
  const std::string shown = printable(name);
  MarkedText text = MarkedText::not_known(
      sourced_.empty() ? fmt::format("the variable {}, which line {} uses and nothing sets", shown, place.line)
                       : fmt::format("the variable {}, which line {} uses and {} may set", shown, place.line, sourced_),
      sourced_.empty() ? MarkedText::kUnset : MarkedText::kHole);
  text.is_unset = sourced_.empty();
  return found(std::move(text));
}

bool ShellReader::is_set(const std::string& name) const {
  if (variables_.find(name) != nullptr) return true;
  const ShellValue& arguments = *variables_.find(kShellArguments);
  const size_t number = place_in_list(name).value_or(0);
  if (number == 0) return false;
  return !arguments.unknown.empty() || (number <= arguments.items.size() && !arguments.items[number - 1].is_unset);
}

ShellValue ShellReader::braces(bool is_quoted) {
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
  const bool is_all = index ? *index == "@" || *index == "*" : name == "@" || name == "*";
  const auto value = [&]() -> ShellValue {
    if (is_dry_) return {};
    ShellValue own;
    const ShellValue& known = value_of(name, place, own);
    if (index && !is_all) {
      const MarkedText* item = item_of(known, *index);
      return {.items = {item != nullptr
                            ? *item
                            : MarkedText::not_known(fmt::format("the item {} of {} in line {}", printable(*index),
                                                                printable(name), place.line))}};
    }
    if (known.is_array && !is_all) {  // a plain ${NAME} is the first item
      ShellValue first{.unknown = known.unknown};
      if (!known.items.empty()) first.items.push_back(known.items.front());
      return first;
    }
    charge(known);
    return error_ ? ShellValue{} : known;
  };
  if (take("}")) return value();
  const bool has_colon = peek() == ':';
  const char op = peek(has_colon ? 1 : 0);
  if (std::string_view("-=+?").find(op) == std::string_view::npos || op == '\0') return unread();
  if (has_colon) next();
  next();
  std::vector<MarkedText> fields;
  bool is_open = false;
  if (!goes_deeper()) return {};
  // What the variable is set to is no pattern, and a quote inside of quotes is none for it.
  const bool was_pattern = std::exchange(is_pattern_, is_pattern_ && !is_quoted && op != '=');
  while (!is_over() && peek() != '}') {
    if (peek() == ' ' || peek() == '\n' || peek() == '\t') {
      const Place at = here();
      open_field(fields, is_open).add(next(), at);
    } else {
      word_part(fields, is_open, /*is_quoted=*/false);
    }
  }
  is_pattern_ = was_pattern;
  --depth_;
  if (!take("}")) fail(place, "${ is not closed", "Close it with }.");
  ShellValue other{.items = {MarkedText{}}};
  for (const MarkedText& field : fields) other.items.front().add(field);
  if (is_dry_ || error_) return {};
  const auto is_empty = [&] {
    ShellValue own;
    const ShellValue& known = value_of(name, place, own);
    if (index && !is_all) {
      const MarkedText* item = item_of(known, *index);
      return item != nullptr && item->text.empty();
    }
    if (!known.unknown.empty()) return false;
    return known.items.empty() || ((known.items.size() == 1 || !is_all) && known.items.front().text.empty());
  };
  // A variable that nothing sets here is taken not to be set outside either.
  const bool is_missing = !is_set(name) || (has_colon && is_empty());
  if (op == '+') return is_missing ? ShellValue{.items = {MarkedText{}}} : other;
  if (!is_missing || op == '?') return value();
  if (op == '=') {
    set(name, other);
    if (variables_.is_given(name)) return value();
  }
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
    return add(braces(is_quoted), is_all);
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
  if (is_dry_) return;
  ShellValue own;
  const ShellValue& value = value_of(name, place, own);
  if (!value.is_array || value.items.size() <= 1 || name == "@" || name == "*") return add(value, name == "@");
  own = {.items = {value.items.front()}, .unknown = value.unknown};
  add(own);
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
