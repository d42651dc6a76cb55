#include "weft/exchange/shell_script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_condition.h"
#include "weft/exchange/shell_pattern.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 8> kBlockEnds = {"then", "else", "elif", "fi", "do", "done", "esac", "}"};
constexpr std::array<std::string_view, 5> kDeclarations = {"export", "declare", "local", "readonly", "typeset"};
/// Letters of NAME[...] in front of an '='. They are looked for at every word, and may go on to the end of the file.
constexpr size_t kLongestIndex = 128;
/// What it costs to look at a variable that a part of a script changed, counted in letters.
constexpr size_t kWorkOfChange = 64;

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_letter_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// How many letters of NAME=, NAME+= or NAME[...]= stand at the beginning; 0 where it is no assignment.
size_t assignment_length(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && is_letter_of_name(text[end])) ++end;
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

/// The names that an arithmetic expression may set, by the operators beside them.
std::vector<std::string> assigned_names(std::string_view text) {
  std::vector<std::string> names;
  std::string before;  // the operator in front
  for (size_t at = 0; at < text.size();) {
    if (!is_letter_of_name(text[at])) {
      if (std::isspace(static_cast<unsigned char>(text[at])) == 0) before += text[at];
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && is_letter_of_name(text[at])) ++at;
    const size_t next = std::min(text.find_first_not_of(" \t\n", at), text.size());
    const std::string_view behind = text.substr(next, 3);
    const size_t equals = behind.find('=');
    const bool is_set = (equals == 0 && !behind.starts_with("==")) ||
                        (equals != std::string_view::npos && equals > 0 &&
                         std::string_view("*/%+-&^|<>").find(behind[equals - 1]) != std::string_view::npos);
    if (is_set || behind.starts_with("++") || behind.starts_with("--") || behind.starts_with("[") ||
        before.ends_with("++") || before.ends_with("--"))
      names.emplace_back(text.substr(begin, at - begin));
    before.clear();
  }
  return names;
}

bool is_blank(const MarkedText& text) {
  return text.unknown.empty() && text.text.find_first_not_of(" \t\n") == std::string::npos;
}

}  // namespace

ShellReader::ShellReader(std::span<const SettingsFile> files, const ShellVariables& given)
    : files_(files), variables_(given) {}

Result<std::vector<ShellCommand>> ShellReader::run() {
  sub_script(files_.front().text, 0, /*keeps_places=*/true);
  if (error_) return *error_;
  return std::move(commands_);
}

Result<ArgumentLists> ShellReader::lists() {
  sub_script(files_.front().text, 0, /*keeps_places=*/true);
  std::vector<std::tuple<uint32_t, uint32_t, std::string>> lists;
  for (const auto& [name, value] : variables_.all()) {
    if (value.items.empty() || name == kShellArguments) continue;
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
    text += variables_.find(name)->is_array ? fmt::format(" ${{{}[@]}}", name) : " $" + name;
  }
  commands_.clear();
  if (!lists.empty()) sub_script(text, 0, /*keeps_places=*/false);
  if (error_) return *error_;
  if (!commands_.empty()) result.command = std::move(commands_.front());
  return result;
}

void ShellReader::sub_script(std::string_view text, uint32_t file, bool keeps_places) {
  charge(text.size());
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
    } else if ((peek() == ';' && peek(1) != ';' && peek(1) != '&') || (peek() == '&' && peek(1) != '&')) {
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
    if (is_over() || peek() == ')' || (peek() == ';' && (peek(1) == ';' || peek(1) == '&'))) return last;
    if (is_one_of(bare_word(), kBlockEnds)) return last;
    const size_t before = at_;
    variables_.open();
    last = chain();
    if (peek() == '&' && peek(1) != '&') {
      take_back();  // a shell of its own runs it
    } else {
      keep();
    }
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
  variables_.open();
  Truth truth = statement();
  redirections();
  const auto is_pipe = [&] {
    skip_blanks();
    return peek() == '|' && peek(1) != '|';
  };
  if (!is_pipe()) {
    keep();
    return is_negated ? negated(truth) : truth;
  }
  // Every stage is run by a shell of its own.
  take_back();
  while (is_pipe()) {
    next();
    if (peek() == '&') next();
    while (!is_over() && (skip_blanks(), peek() == '\n')) next();
    variables_.open();
    statement();
    redirections();
    take_back();
  }
  return Truth::kUnknown;
}

void ShellReader::redirections() {
  while (!is_over()) {
    skip_blanks();
    const bool is_numbered =
        std::isdigit(static_cast<unsigned char>(peek())) != 0 && (peek(1) == '<' || peek(1) == '>');
    if (is_numbered) next();
    if (peek() != '<' && peek() != '>' && !(peek() == '&' && peek(1) == '>')) return;
    redirection();
  }
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
    variables_.open();
    truth = statements();
    take_back();
    if (!take(")")) fail(here(), "a bracket ( is not closed", "Close it.");
  } else if (word == "[[" && take("[[")) {
    truth = double_brackets();
  } else {
    truth = simple_command();
  }
  --depth_;
  return truth;
}

Truth ShellReader::double_brackets() {
  std::vector<MarkedText> words;
  const Place begin = here();
  bool is_closed = false, compares = false;
  while (!is_over() && !is_closed) {
    while (!is_over() && (skip_blanks(), peek() == '\n')) next();
    if (take_keyword("]]")) {
      is_closed = true;
      continue;
    }
    if (is_over()) break;
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
      words.push_back(compares ? pattern() : joined(word(), place));
      if (at_ == before) next();  // what begins no word
    }
    const MarkedText& last = words.back();
    compares = last.unknown.empty() && (last.text == "==" || last.text == "=" || last.text == "!=");
  }
  if (!is_closed) fail(begin, "[[ is not closed with ]]", "Close it.");
  if (is_dry_) return Truth::kUnknown;
  size_t work = 0;
  const Truth truth = test_of(words, TestKind::kDoubleBrackets, work);
  charge(work);
  return truth;
}

MarkedText ShellReader::pattern() {
  const Place place = here();
  is_pattern_ = true;
  MarkedText text = joined(word(), place);
  is_pattern_ = false;
  // *(...) and its like, of extglob.
  if (peek() == '(' && !text.text.empty() &&
      std::string_view("?*+@!").find(text.text.back()) != std::string_view::npos) {
    next();
    skip_command(')');
    word();
    text = MarkedText::not_known(fmt::format("a pattern of a kind that is not read, in line {}", place.line));
  }
  return text;
}

Truth ShellReader::if_statement() {
  const Place place = here();
  const Truth condition = statements();
  if (!take_keyword("then")) fail(place, "an if has no then", "Add it.");
  const bool was_dry = is_dry_;
  const bool is_open = condition == Truth::kUnknown && !was_dry;
  if (is_open) variables_.open();
  is_dry_ = was_dry || condition == Truth::kFalse;
  statements();
  ShellEnvironment::Changes changes;
  if (is_open) {
    changes = take_back();
    variables_.open();
  }
  is_dry_ = was_dry || condition == Truth::kTrue;
  if (take_keyword("elif")) {
    if (goes_deeper()) if_statement();
    --depth_;
  } else if (take_keyword("else")) {
    statements();
  }
  is_dry_ = was_dry;
  if (is_open)
    unite(changes,
          fmt::format("the condition in line {}, which cannot be known without running the script", place.line));
  return Truth::kUnknown;
}

void ShellReader::keep() {
  charge(variables_.num_changes());
  if (!error_) variables_.keep();  // behind an error, nobody asks for variables
}

ShellEnvironment::Changes ShellReader::take_back() {
  charge(kWorkOfChange * variables_.num_changes());
  return error_ ? ShellEnvironment::Changes{} : variables_.take_back();
}

void ShellReader::unite(const ShellEnvironment::Changes& others, const std::string& why) {
  charge(kWorkOfChange * (variables_.num_changes() + others.size()));
  if (!error_) variables_.unite(others, why);
}

template <typename Body>
void ShellReader::maybe(const std::string& why, Body body) {
  if (is_dry_) return body();
  variables_.open();
  body();
  unite({}, why);
}

Truth ShellReader::loop(bool is_for) {
  const Place place = here();
  const std::string why = fmt::format("the loop in line {}", place.line);
  Truth condition = Truth::kUnknown;
  std::vector<std::string> names;
  if (is_for) {
    skip_blanks();
    if (take("((")) {
      const size_t begin = at_;
      int open = 2;
      while (!is_over() && open > 0) {
        const char c = next();
        open += c == '(' ? 1 : c == ')' ? -1 : 0;
      }
      names = assigned_names(text_.substr(begin, at_ - begin));
    } else {
      names = {bare_word()};
      take(names.front());
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
    for (const std::string& name : names) {
      if (is_variable_name(name) && !is_dry_) set(name, {.items = {}, .unknown = why});
    }
    statements();
  });
  is_dry_ = was_dry;
  if (!take_keyword("done")) fail(place, "a loop is not closed with done", "Close it.");
  return Truth::kUnknown;
}

/// Whether one of the patterns of a clause fits, up to the bracket that ends them.
Truth ShellReader::clause_fits(const MarkedText& subject) {
  Truth truth = Truth::kFalse;
  while (!is_over() && peek() != ')') {
    const size_t before = at_;
    if (has_word()) {
      const MarkedText fitting = pattern();
      size_t work = 0;
      const Truth fits =
          is_dry_ || truth == Truth::kTrue ? Truth::kFalse
          : !fitting.unknown.empty() && !fitting.is_unset
              ? Truth::kUnknown
              : fits_shell_pattern(subject.is_unset ? "" : subject.text, fitting.is_unset ? "" : fitting.text, work);
      charge(work);
      if (fits != Truth::kFalse) truth = fits;
    }
    skip_blanks();
    take("|");
    if (at_ == before) next();
  }
  return truth;
}

Truth ShellReader::case_statement() {
  const Place place = here();
  skip_blanks();
  const MarkedText subject = joined(word(), place);
  const std::string why = fmt::format("the case in line {}", place.line);
  skip_separators();
  if (!take_keyword("in")) fail(place, "a case has no in", "Add it.");
  const bool is_known = subject.unknown.empty() || subject.is_unset;
  // Whether an earlier clause was run, and whether the one before goes on into this one.
  Truth done = Truth::kFalse, falls = Truth::kFalse;
  while (!is_over()) {
    skip_separators();
    if (take_keyword("esac")) return Truth::kUnknown;
    skip_blanks();
    take("(");
    Truth runs = clause_fits(subject);
    if (!is_known) runs = Truth::kUnknown;
    if (!take(")")) break;
    const bool was_dry = is_dry_;
    if (done == Truth::kTrue) runs = Truth::kFalse;
    if (done == Truth::kUnknown && runs == Truth::kTrue) runs = Truth::kUnknown;
    if (falls != Truth::kFalse && runs != Truth::kTrue) runs = falls;
    is_dry_ = was_dry || runs == Truth::kFalse;
    if (runs == Truth::kUnknown) {
      maybe(why, [&] { statements(); });
    } else {
      statements();
    }
    is_dry_ = was_dry;
    skip_blanks();
    falls = Truth::kFalse;
    if (take(";;&")) continue;  // later patterns are tried, too
    if (take(";&")) falls = runs;
    take(";;");
    if (runs == Truth::kTrue || done == Truth::kFalse) done = runs;
  }
  fail(place, "a case is not closed with esac", "Close it.");
  return Truth::kUnknown;
}

Truth ShellReader::function_body(const std::string& name) {
  const std::string why = fmt::format("the function {} in line {}", printable(name), line_);
  skip_separators();
  maybe(why, [&] {
    // A function has arguments of its own.
    ShellValue arguments;
    if (!is_dry_) {
      charge(*variables_.find(kShellArguments));
      arguments = *variables_.find(kShellArguments);
    }
    statement();
    if (!is_dry_) set(std::string(kShellArguments), std::move(arguments));
  });
  return Truth::kTrue;
}

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

Truth ShellReader::simple_command() {
  const Place place = here();
  std::vector<MarkedText> words;
  bool is_declaration = false, is_integer = false;
  // What is set before a command is set for that alone.
  std::optional<ShellEnvironment::Changes> own;
  variables_.open();
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
    if (words.empty() && take_assignment()) continue;
    if (is_declaration && take_assignment(is_integer)) continue;
    if (!own) own = take_back();
    for (MarkedText& field : word()) {
      is_integer |= is_declaration && field.text.starts_with("-") && field.text.find('i') != std::string::npos;
      words.push_back(std::move(field));
      is_declaration = is_one_of(words.front().text, kDeclarations);
    }
  }
  if (!own) {
    keep();
    own.emplace();
  }
  if (is_dry_ || error_) return Truth::kUnknown;
  if (!words.empty()) return run_command(words, place);
  for (auto& [name, value] : *own) {
    if (value) set(name, std::move(*value));
  }
  return Truth::kTrue;
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
