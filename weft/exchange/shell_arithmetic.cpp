#include <cctype>

#include <fmt/format.h>

#include "weft/exchange/shell_reader.h"

namespace weft {

/// An expression inside $(( )), by precedence. Names are variables with or without a dollar.
class ShellArithmetic {
 public:
  explicit ShellArithmetic(ShellReader& reader) : reader_(reader) {}

  int64_t value() { return level(0); }
  const std::string& unknown() const { return unknown_; }
  const std::string& problem() const { return problem_; }

 private:
  struct Operator {
    const char* text;
    int level;
  };
  /// Longer texts first.
  static constexpr Operator kOperators[] = {{"**", 7}, {"||", 0}, {"&&", 1}, {"==", 3}, {"!=", 3}, {"<=", 4}, {">=", 4},
                                            {"<", 4},  {">", 4},  {"+", 5},  {"-", 5},  {"*", 6},  {"/", 6},  {"%", 6}};

  const Operator* ahead() {
    skip();
    for (const Operator& op : kOperators) {
      const std::string_view text = op.text;
      if (reader_.text_.substr(reader_.at_, text.size()) == text) return &op;
    }
    return nullptr;
  }

  void skip() {
    while (!reader_.is_over() && std::isspace(static_cast<unsigned char>(reader_.peek()))) reader_.next();
  }

  int64_t level(int least) {
    if (!reader_.goes_deeper()) return 0;
    int64_t left = unary();
    for (const Operator* op = ahead(); op != nullptr && op->level >= least; op = ahead()) {
      const std::string text = op->text;
      reader_.take(text);
      const int64_t right = level(text == "**" ? op->level : op->level + 1);
      left = apply(text, left, right);
      if (!problem_.empty()) break;
    }
    --reader_.depth_;
    return left;
  }

  int64_t unary() {
    skip();
    int64_t sign = 1;
    bool is_negated = false;
    for (skip(); reader_.peek() == '-' || reader_.peek() == '+' || (reader_.peek() == '!' && reader_.peek(1) != '=');
         skip()) {
      const char c = reader_.next();
      if (c == '-') sign = -sign;
      if (c == '!') is_negated = !is_negated;
    }
    const int64_t value = primary();
    int64_t signed_value = 0;
    if (__builtin_mul_overflow(value, sign, &signed_value)) problem_ = "is larger than 64 bits hold";
    return is_negated ? static_cast<int64_t>(signed_value == 0) : signed_value;
  }

  int64_t primary() {
    if (reader_.peek() == '(') {
      reader_.next();
      const int64_t value = level(0);
      skip();
      if (!reader_.take(")")) problem_ = "has a bracket that is not closed";
      return value;
    }
    if (reader_.peek() == '$' || reader_.peek() == '"') {
      std::vector<MarkedText> fields;
      bool is_open = false;
      reader_.word_part(fields, is_open, /*is_quoted=*/true);
      return number(fields.empty() ? MarkedText{} : fields.back());
    }
    MarkedText text;
    while (std::isalnum(static_cast<unsigned char>(reader_.peek())) || reader_.peek() == '_')
      text.add(reader_.next(), reader_.here());
    if (text.text.empty()) {
      problem_ = fmt::format("has '{}' where a number is expected", reader_.peek());
      return 0;
    }
    if (std::isdigit(static_cast<unsigned char>(text.text.front()))) return number(text);
    const ShellValue value = reader_.value_of(text.text, reader_.here());
    if (!value.unknown.empty() && unknown_.empty()) unknown_ = value.unknown;
    return number(value.items.empty() ? MarkedText{} : value.items.front());
  }

  int64_t number(const MarkedText& text) {
    if (!text.unknown.empty()) {
      if (unknown_.empty()) unknown_ = text.unknown;
      return 1;
    }
    const size_t first = text.text.find_first_not_of(" \t\n"), last = text.text.find_last_not_of(" \t\n");
    if (first == std::string::npos) return 0;
    int64_t value = 0;
    for (size_t i = first; i <= last; ++i) {
      const char c = text.text[i];
      if (i == first && c == '-' && last > first) continue;
      if (c < '0' || c > '9') {
        problem_ = "has a value that is no whole number";
        return 0;
      }
      if (__builtin_mul_overflow(value, int64_t{10}, &value) || __builtin_add_overflow(value, c - '0', &value)) {
        problem_ = "is larger than 64 bits hold";
        return 0;
      }
    }
    return text.text[first] == '-' ? -value : value;
  }

  int64_t apply(const std::string& op, int64_t a, int64_t b) {
    int64_t value = 0;
    bool is_too_large = false;
    if (op == "+") is_too_large = __builtin_add_overflow(a, b, &value);
    if (op == "-") is_too_large = __builtin_sub_overflow(a, b, &value);
    if (op == "*") is_too_large = __builtin_mul_overflow(a, b, &value);
    if (op == "/" || op == "%") {
      if (b == 0) {
        problem_ = "divides by zero";
        return 0;
      }
      if (b == -1) {
        is_too_large = op == "/" && __builtin_sub_overflow(int64_t{0}, a, &value);
      } else {
        value = op == "/" ? a / b : a % b;
      }
    }
    if (op == "**") {
      value = 1;
      for (int64_t i = 0; i < b && !is_too_large && i < 64; ++i)
        is_too_large = __builtin_mul_overflow(value, a, &value);
    }
    if (op == "==") value = a == b;
    if (op == "!=") value = a != b;
    if (op == "<=") value = a <= b;
    if (op == ">=") value = a >= b;
    if (op == "<") value = a < b;
    if (op == ">") value = a > b;
    if (op == "&&") value = a != 0 && b != 0;
    if (op == "||") value = a != 0 || b != 0;
    if (is_too_large) problem_ = "is larger than 64 bits hold";
    return value;
  }

  ShellReader& reader_;
  std::string unknown_;
  std::string problem_;
};

MarkedText ShellReader::arithmetic(std::string_view end) {
  const Place begin = here();
  ShellArithmetic expression(*this);
  const int64_t value = expression.value();
  while (!is_over() && std::isspace(static_cast<unsigned char>(peek()))) next();
  MarkedText result;
  const bool is_read = text_.substr(at_, end.size()) == end;
  if (!error_ && !is_dry_ && is_read && !expression.problem().empty() && expression.unknown().empty()) {
    fail(begin, fmt::format("the arithmetic {}", expression.problem()), "Write the number that it stands for.");
  }
  if (!error_ && !take(end)) {
    // Arithmetic of other kinds (shifts, assignments) is read over.
    int open = 0;
    while (!is_over() && !(open == 0 && text_.substr(at_, end.size()) == end)) {
      const char c = next();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (open < 0) break;
    }
    if (!take(end)) fail(begin, "$((, or ((, is not closed", "Close it with )).");
    return MarkedText::not_known(fmt::format("arithmetic of a kind that is not read, in line {}", begin.line));
  }
  if (!expression.unknown().empty()) return MarkedText::not_known(expression.unknown());
  result.add(std::to_string(value), {file_, 0});
  return result;
}

}  // namespace weft
