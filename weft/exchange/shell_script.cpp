#include "weft/exchange/shell_script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/pattern.h"
#include "weft/base/text.h"
#include "weft/exchange/shell_condition.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 8> kBlockEnds = {"then", "else", "elif", "fi", "do", "done", "esac", "}"};
constexpr std::array<std::string_view, 6> kDeclarations = {"export", "declare", "local", "readonly", "typeset", "let"};

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// How many letters of NAME=, NAME+= or NAME[...]= stand at the beginning; 0 where it is no assignment.
size_t assignment_length(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
  if (end == 0 || std::isdigit(static_cast<unsigned char>(text.front()))) return 0;
  if (end < text.size() && text[end] == '[') {
    while (end < text.size() && text[end] != ']' && text[end] != '\n') ++end;
    if (end < text.size()) ++end;
  }
  if (text.substr(end).starts_with("+=")) return end + 2;
  return text.substr(end).starts_with("=") ? end + 1 : 0;
}

bool is_variable_name(const std::string& word) {
  return !word.empty() && assignment_length(word + "=") == word.size() + 1;
}

MarkedText joined(const std::vector<MarkedText>& fields, Place place) {
  MarkedText text;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) text.add(' ', place);
    text.add(fields[i]);
  }
  return text;
}

}  // namespace

ShellReader::ShellReader(std::span<const SettingsFile> files, const ShellVariables& given)
    : files_(files), given_(given) {
  for (const auto& [name, text] : given) {
    MarkedText value;
    value.add(text, {0, 0});
    variables_[name] = {.items = {value}};
  }
}

Result<std::vector<ShellCommand>> ShellReader::run() {
  sub_script(files_.front().text, 0, /*keeps_places=*/true);
  if (error_) return *error_;
  return std::move(commands_);
}

Result<ArgumentLists> ShellReader::lists() {
  sub_script(files_.front().text, 0, /*keeps_places=*/true);
  std::vector<std::tuple<uint32_t, uint32_t, std::string>> lists;
  for (const auto& [name, value] : variables_) {
    if (value.items.empty()) continue;
    const MarkedText& first = value.items.front();
    const size_t begin = first.text.find_first_not_of(" \t\n");
    if (begin == std::string::npos || !std::string_view(first.text).substr(begin).starts_with("--")) continue;
    lists.emplace_back(first.places[begin].file, first.places[begin].line, name);
  }
  std::sort(lists.begin(), lists.end());
  ArgumentLists result;
  std::string text = "arguments";
  for (const auto& [file, line, name] : lists) {
    result.variables.push_back(name);
    text += variables_[name].is_array ? fmt::format(" ${{{}[@]}}", name) : " $" + name;
  }
  commands_.clear();
  if (!lists.empty()) sub_script(text, 0, /*keeps_places=*/false);
  if (error_) return *error_;
  if (!commands_.empty()) result.command = std::move(commands_.front());
  return result;
}

void ShellReader::sub_script(std::string_view text, uint32_t file, bool keeps_places) {
  if (!goes_deeper()) return;
  const auto outer = std::tuple(text_, at_, file_, line_);
  text_ = text, at_ = 0;
  if (keeps_places) file_ = file, line_ = 1;
  while (!is_over()) {
    const size_t before = at_;
    statements();
    if (at_ == before) next();  // an end without a beginning
  }
  std::tie(text_, at_, file_, line_) = outer;
  --depth_;
}

void ShellReader::skip_separators() {
  while (!is_over()) {
    skip_blanks();
    if (peek() == '\n') {
      next();
      if (!pending_documents_.empty()) here_documents();
    } else if ((peek() == ';' && peek(1) != ';') || (peek() == '&' && peek(1) != '&')) {
      next();
    } else {
      return;
    }
  }
}

Truth ShellReader::statements() {
  Truth last = Truth::kTrue;
  while (true) {
    skip_separators();
    if (is_over() || peek() == ')' || (peek() == ';' && peek(1) == ';')) return last;
    if (is_one_of(bare_word(), kBlockEnds)) return last;
    const size_t before = at_;
    last = chain();
    if (at_ == before) next();
  }
}

Truth ShellReader::chain() {
  Truth truth = pipeline();
  while (!error_) {
    skip_blanks();
    const bool is_and = take("&&");
    if (!is_and && !take("||")) return truth;
    while (!is_over() && (skip_blanks(), peek() == '\n')) next();
    const Truth skips = is_and ? Truth::kFalse : Truth::kTrue;
    if (truth == skips) {
      const bool was_dry = std::exchange(is_dry_, true);
      pipeline();
      is_dry_ = was_dry;
    } else if (truth == Truth::kUnknown) {
      maybe(fmt::format("what comes before {} in line {}", is_and ? "&&" : "||", line_), [&] { pipeline(); });
    } else {
      truth = pipeline();
    }
  }
  return truth;
}

Truth ShellReader::pipeline() {
  bool is_negated = false;
  while (take_keyword("!")) is_negated = !is_negated;
  Truth truth = statement();
  for (skip_blanks(); peek() == '|' && peek(1) != '|'; skip_blanks()) {
    next();
    if (peek() == '&') next();
    while (!is_over() && (skip_blanks(), peek() == '\n')) next();
    statement();
    truth = Truth::kUnknown;
  }
  return is_negated ? negated(truth) : truth;
}

Truth ShellReader::statement() {
  if (!goes_deeper()) return Truth::kUnknown;
  skip_blanks();
  const std::string word = bare_word();
  Truth truth = Truth::kUnknown;
  const auto rest = text_.substr(std::min(text_.size(), at_ + word.size()));
  const bool is_function = rest.starts_with("()") && is_variable_name(word);
  if (word == "if" && take_keyword("if")) {
    truth = if_statement();
    if (!take_keyword("fi")) fail(here(), "an if is not closed with fi", "Close it.");
  } else if (word == "while" || word == "until" || word == "for" || word == "select") {
    take(word);
    truth = loop(word == "for" || word == "select");
  } else if (word == "case" && take_keyword("case")) {
    truth = case_statement();
  } else if (word == "function" && take_keyword("function")) {
    skip_blanks();
    const std::string name = bare_word();
    take(name);
    skip_blanks();
    take("()");
    truth = function_body(name);
  } else if (is_function) {
    take(word), take("()");
    truth = function_body(word);
  } else if (word == "{" && take("{")) {
    truth = statements();
    if (!take_keyword("}")) fail(here(), "a block is not closed with }", "Close it.");
  } else if (peek() == '(' && peek(1) == '(') {
    take("((");
    const MarkedText value = arithmetic("))");
    truth = value.unknown.empty() ? truth_of(value.text != "0") : Truth::kUnknown;
  } else if (peek() == '(') {
    next();
    const ShellEnvironment before = variables_;
    truth = statements();
    variables_ = before;
    if (!take(")")) fail(here(), "a bracket ( is not closed", "Close it.");
  } else if (word == "[[" && take("[[")) {
    std::vector<MarkedText> words;
    const Place begin = here();
    while (!is_over()) {
      while (!is_over() && (skip_blanks(), peek() == '\n')) next();
      if (take_keyword("]]")) break;
      const Place place = here();
      MarkedText op;
      if (take("&&") || take("||")) {
        op.add(text_.substr(at_ - 2, 2), place);
        words.push_back(op);
      } else if (std::string_view("()<>&|;").find(peek()) != std::string_view::npos) {
        op.add(next(), place);
        words.push_back(op);
      } else {
        const size_t before = at_;
        words.push_back(joined(this->word(), place));
        if (at_ == before) next();  // what begins no word
      }
    }
    if (is_over() && !text_.substr(0, at_).ends_with("]]")) fail(begin, "[[ is not closed with ]]", "Close it.");
    truth = test_of(words);
  } else {
    truth = simple_command();
  }
  --depth_;
  return truth;
}

Truth ShellReader::if_statement() {
  const Place place = here();
  const Truth condition = statements();
  if (!take_keyword("then")) fail(place, "an if has no then", "Add it.");
  const bool was_dry = is_dry_;
  const ShellEnvironment before = variables_;
  is_dry_ = was_dry || condition == Truth::kFalse;
  statements();
  ShellEnvironment after = variables_;
  if (condition == Truth::kUnknown) variables_ = before;
  is_dry_ = was_dry || condition == Truth::kTrue;
  if (take_keyword("elif")) {
    if (goes_deeper()) if_statement();
    --depth_;
  } else if (take_keyword("else")) {
    statements();
  }
  is_dry_ = was_dry;
  if (condition == Truth::kUnknown)
    merge(after, fmt::format("the condition in line {}, which cannot be known without running the script", place.line));
  return Truth::kUnknown;
}

void ShellReader::merge(const ShellEnvironment& other, const std::string& why) {
  if (is_dry_) return;
  for (const auto& [name, value] : other) {
    for (const MarkedText& item : value.items) work_ += item.text.size() + 16;
    const auto found = variables_.find(name);
    if (found == variables_.end() || found->second != value)
      variables_[name] = {.is_array = value.is_array, .items = {}, .unknown = why};
  }
  for (auto& [name, value] : variables_) {
    if (!other.contains(name)) value = {.is_array = value.is_array, .items = {}, .unknown = why};
  }
}

template <typename Body>
void ShellReader::maybe(const std::string& why, Body body) {
  if (is_dry_) return body();
  const ShellEnvironment before = variables_;
  body();
  merge(before, why);
}

Truth ShellReader::loop(bool is_for) {
  const Place place = here();
  const std::string why = fmt::format("the loop in line {}", place.line);
  Truth condition = Truth::kUnknown;
  std::string name;
  if (is_for) {
    skip_blanks();
    if (take("((")) {
      int open = 2;
      while (!is_over() && open > 0) {
        const char c = next();
        open += c == '(' ? 1 : c == ')' ? -1 : 0;
      }
    } else {
      name = bare_word();
      take(name);
      if (take_keyword("in")) {
        while (has_word()) word();
      }
    }
    skip_separators();
  } else {
    condition = statements();
  }
  if (!take_keyword("do")) fail(place, "a loop has no do", "Add it.");
  const bool was_dry = is_dry_;
  is_dry_ = was_dry || condition == Truth::kFalse;
  maybe(why, [&] {
    if (!name.empty() && !is_dry_) variables_[name] = {.items = {}, .unknown = why};
    statements();
  });
  is_dry_ = was_dry;
  if (!take_keyword("done")) fail(place, "a loop is not closed with done", "Close it.");
  return Truth::kUnknown;
}

Truth ShellReader::case_statement() {
  const Place place = here();
  skip_blanks();
  const MarkedText subject = joined(word(), place);
  const std::string why = fmt::format("the case in line {}", place.line);
  skip_separators();
  if (!take_keyword("in")) fail(place, "a case has no in", "Add it.");
  const bool is_known = subject.unknown.empty() || subject.is_unset;
  bool is_done = false;
  while (!is_over()) {
    skip_separators();
    if (take_keyword("esac")) return Truth::kUnknown;
    skip_blanks();
    take("(");
    bool matches = false;
    while (!is_over() && peek() != ')') {
      const size_t before = at_;
      if (has_word()) matches |= fits_pattern(subject.text, joined(word(), place).text);
      skip_blanks();
      take("|");
      if (at_ == before) next();
    }
    if (!take(")")) break;
    const bool was_dry = is_dry_;
    is_dry_ = was_dry || (is_known && (is_done || !matches));
    is_done |= matches;
    if (is_known) {
      statements();
    } else {
      maybe(why, [&] { statements(); });
    }
    is_dry_ = was_dry;
    skip_blanks();
    if (take(";;")) take("&");
  }
  fail(place, "a case is not closed with esac", "Close it.");
  return Truth::kUnknown;
}

Truth ShellReader::function_body(const std::string& name) {
  const std::string why = fmt::format("the function {} in line {}", printable(name), line_);
  skip_separators();
  maybe(why, [&] { statement(); });
  return Truth::kTrue;
}

bool ShellReader::take_assignment(ShellEnvironment& into) {
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
  if (is_dry_ || given_.contains(name)) return true;
  if (bracket != std::string::npos) {
    name.resize(bracket);
    value = {.is_array = true, .unknown = fmt::format("an item that line {} sets", place.line)};
  }
  const auto known = variables_.find(name);
  if (adds && known != variables_.end()) {
    ShellValue sum = known->second;
    if (sum.is_array && value.is_array) {
      sum.items.insert(sum.items.end(), value.items.begin(), value.items.end());
    } else if (!sum.items.empty() && !value.items.empty()) {
      sum.items.front().add(value.items.front());
    }
    if (sum.unknown.empty()) sum.unknown = value.unknown;
    value = std::move(sum);
  }
  for (const MarkedText& item : value.items) work_ += item.text.size() + 16;
  into[name] = std::move(value);
  return true;
}

Truth ShellReader::simple_command() {
  const Place place = here();
  std::vector<MarkedText> words;
  ShellEnvironment own;
  bool is_declaration = false;
  while (!error_) {
    skip_blanks();
    if (peek() == '<' || peek() == '>' || (peek() == '&' && peek(1) == '>')) {
      redirection();
      continue;
    }
    if (!has_word()) break;
    const std::string ahead = bare_word();
    const char after = peek(ahead.size());
    if (!ahead.empty() && (after == '<' || after == '>') &&
        std::all_of(ahead.begin(), ahead.end(), [](unsigned char c) { return std::isdigit(c); })) {
      take(ahead);
      continue;
    }
    if (words.empty() && take_assignment(own)) continue;
    if (is_declaration && take_assignment(variables_)) continue;
    for (MarkedText& field : word()) words.push_back(std::move(field));
    is_declaration = !words.empty() && is_one_of(words.front().text, kDeclarations);
  }
  if (is_dry_ || error_) return Truth::kUnknown;
  if (words.empty()) {
    for (auto& [name, value] : own) variables_[name] = std::move(value);
    return Truth::kTrue;
  }
  return run_builtin(words, place);
}

Truth ShellReader::run_builtin(std::vector<MarkedText>& words, Place place) {
  const std::string name = words.front().unknown.empty() ? words.front().text : "";
  if (is_one_of(name, kDeclarations) || name == ":" || name == "true" || name == "set" || name == "shopt") {
    return Truth::kTrue;
  }
  if (name == "false") return Truth::kFalse;
  if (name == "[" || name == "test") {
    std::vector<MarkedText> rest(words.begin() + 1, words.end());
    if (name == "[" && !rest.empty() && rest.back().text == "]") rest.pop_back();
    return test_of(rest);
  }
  if (name == "source" || name == ".") {
    source(words, place);
    return Truth::kUnknown;
  }
  if (name == "read" || name == "mapfile" || name == "readarray") {
    for (size_t i = 1; i < words.size(); ++i) {
      if (is_variable_name(words[i].text))
        variables_[words[i].text] = {.unknown = fmt::format("the input that line {} reads", place.line)};
    }
    return Truth::kUnknown;
  }
  if (name == "unset") {
    for (size_t i = 1; i < words.size(); ++i) variables_.erase(words[i].text);
    return Truth::kTrue;
  }
  if (name == "eval") {
    const MarkedText text = joined({words.begin() + 1, words.end()}, place);
    if (text.unknown.empty()) {
      sub_script(text.text, file_, /*keeps_places=*/false);
      return Truth::kUnknown;
    }
  }
  ShellCommand command{.words = {}, .place = place};
  for (MarkedText& word : words) {
    const Place at = word.places.empty() ? Place{place.file, 0} : word.places.front();
    command.words.push_back(
        {.text = std::move(word.text), .unknown = std::move(word.unknown), .is_unset = word.is_unset, .place = at});
  }
  commands_.push_back(std::move(command));
  return Truth::kUnknown;
}

void ShellReader::source(const std::vector<MarkedText>& words, Place place) {
  if (words.size() < 2) return;
  const std::string name = std::filesystem::path(words[1].text).filename().string();
  for (uint32_t file = 1; file < files_.size(); ++file) {
    if (std::filesystem::path(files_[file].name).filename() == name) return sub_script(files_[file].text, file, true);
  }
  sourced_ = fmt::format("{} (sourced in line {})", name.empty() ? "a file" : printable(name), place.line);
}

Result<std::vector<ShellCommand>> read_script(std::span<const SettingsFile> files, const ShellVariables& given) {
  if (files.empty()) return std::vector<ShellCommand>();
  return ShellReader(files, given).run();
}

Result<ArgumentLists> read_argument_lists(std::span<const SettingsFile> files, const ShellVariables& given) {
  if (files.empty()) return ArgumentLists();
  return ShellReader(files, given).lists();
}

}  // namespace weft
