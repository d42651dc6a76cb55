#include "weft/exchange/shell_script.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 8> kBlockEnds = {"then", "else", "elif", "fi", "do", "done", "esac", "}"};
constexpr std::array<std::string_view, 5> kDeclarations = {"export", "declare", "local", "readonly", "typeset"};

template <size_t N>
bool is_one_of(std::string_view word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
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
    truth = loop(word == "while" ? Loop::kWhile : word == "until" ? Loop::kUntil : Loop::kFor);
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
