#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_arithmetic.h"
#include "weft/exchange/shell_condition.h"
#include "weft/exchange/shell_pattern.h"
#include "weft/exchange/shell_reader.h"

// What holds statements and may leave them out, run them again or not at all.
namespace weft {
namespace {

/// What it costs to look at a variable that a part of a script changed, counted in letters.
constexpr size_t kWorkOfChange = 64;

}  // namespace

void ShellReader::keep() {
  charge(variables_.num_changes());
  if (!error_) variables_.keep();  // behind an error, nobody asks for variables
}

ShellEnvironment::Changes ShellReader::take_back() {
  charge(kWorkOfChange * variables_.num_changes());
  return error_ ? ShellEnvironment::Changes{} : variables_.take_back();
}

bool ShellReader::unite(const ShellEnvironment::Changes& others, const std::string& why) {
  charge(kWorkOfChange * (variables_.num_changes() + others.size()));
  return !error_ && variables_.unite(others, why);
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

std::vector<std::string> ShellReader::names_of_for() {
  skip_blanks();
  if (take("((")) {
    const size_t begin = at_;
    int open = 2;
    while (!is_over() && open > 0) {
      const char c = next();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    return assigned_names(text_.substr(begin, at_ - begin));
  }
  const std::string name = bare_word();
  take(name);
  if (take_keyword("in")) {
    while (has_word()) word();
  }
  return {name};
}

bool ShellReader::round(Loop kind, Place place, const std::string& why, bool is_first) {
  Truth condition = Truth::kUnknown;
  std::vector<std::string> names;
  const bool was_dry = is_dry_;
  // The first round's condition is surely asked; the others' are as uncertain as their bodies.
  const bool is_open = !is_first && !was_dry;
  variables_.open();
  if (kind == Loop::kFor) {
    names = names_of_for();
    skip_separators();
  } else {
    condition = statements();
    if (kind == Loop::kUntil) condition = negated(condition);
  }
  bool changes = condition != Truth::kFalse && variables_.num_changes() > 0;
  if (!is_open) keep();
  if (!take_keyword("do")) fail(place, "a loop has no do", "Add it.");
  is_dry_ = was_dry || condition == Truth::kFalse;
  changes |= maybe(why, [&] {
    for (const std::string& name : names) {
      if (is_variable_name(name) && !is_dry_) set(name, {.items = {}, .unknown = why});
    }
    statements();
  });
  is_dry_ = was_dry;
  if (is_open) changes = unite({}, why);
  return changes;
}

Truth ShellReader::loop(Loop kind) {
  const Place place = here();
  const std::string why = fmt::format("the loop in line {}", place.line);
  const auto begin = std::tuple(at_, line_, pending_documents_);
  bool changes = round(kind, place, why, /*is_first=*/true);
  // What a round changes, the next one reads: until none changes more. Their commands are the first one's.
  const size_t num_commands = commands_.size();
  while (changes && !error_) {
    charge(at_ - std::get<0>(begin));
    std::tie(at_, line_, pending_documents_) = begin;
    changes = round(kind, place, why, /*is_first=*/false);
    commands_.resize(num_commands);
  }
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

}  // namespace weft
