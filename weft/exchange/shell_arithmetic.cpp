#include "weft/exchange/shell_arithmetic.h"

#include <algorithm>
#include <cctype>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/exchange/shell_reader.h"

namespace weft {
namespace {

constexpr const char* kTooLarge = "is larger than 64 bits hold";
constexpr const char* kNoNumber = "has a value that is no whole number";

struct ArithmeticOperator {
  const char* text;
  int level;
};
/// Longer texts first. Those of assignments are none of these: they stand behind a name alone.
constexpr ArithmeticOperator kArithmeticOperators[] = {
    {"**", 10}, {"||", 0}, {"&&", 1}, {"==", 5}, {"!=", 5}, {"<<", 7}, {">>", 7}, {"<=", 6}, {">=", 6}, {"<", 6},
    {">", 6},   {"+", 8},  {"-", 8},  {"*", 9},  {"/", 9},  {"%", 9},  {"|", 2},  {"^", 3},  {"&", 4}};
constexpr int kPowerLevel = 10;

int digit_of(char c, int base) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return base <= 36 ? c - 'A' + 10 : c - 'A' + 36;
  return c == '@' ? 62 : c == '_' ? 63 : 64;
}

}  // namespace

std::vector<std::string> assigned_names(std::string_view text) {
  std::vector<std::string> names;
  std::string before;  // the operator in front
  for (size_t at = 0; at < text.size();) {
    if (!is_name_letter(text[at])) {
      if (std::isspace(static_cast<unsigned char>(text[at])) == 0) before += text[at];
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && is_name_letter(text[at])) ++at;
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

ShellNumber ShellArithmetic::value() {
  return list();
}

ShellNumber ShellArithmetic::list() {
  ShellNumber value = assignment();
  while (!is_stuck_ && takes(",")) value = assignment();
  return value;
}

void ShellArithmetic::skip() {
  while (!reader_.is_over()) {
    if (reader_.peek() == '\\' && reader_.peek(1) == '\n') reader_.next();
    if (std::isspace(static_cast<unsigned char>(reader_.peek())) == 0) return;
    reader_.next();
  }
}

bool ShellArithmetic::takes(std::string_view text) {
  skip();
  return reader_.take(text);
}

void ShellArithmetic::fail(std::string problem) {
  if (num_skipped_ == 0 && problem_.empty()) problem_ = std::move(problem);
}

void ShellArithmetic::stop(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
  is_stuck_ = true;
}

/// One without a comma.
ShellNumber ShellArithmetic::assignment() {
  const ShellNumber condition = level(0);
  if (is_stuck_ || !takes("?")) return condition;
  const bool is_known = condition.unknown.empty();
  // Where the condition is not known, either side may be the one that is computed.
  const auto side = [&](bool is_taken) {
    num_skipped_ += is_known && !is_taken ? 1 : 0;
    num_maybe_ += is_known ? 0 : 1;
    if (!reader_.goes_deeper()) return ShellNumber{};
    ShellNumber value = assignment();
    --reader_.depth_;
    num_skipped_ -= is_known && !is_taken ? 1 : 0;
    num_maybe_ -= is_known ? 0 : 1;
    return value;
  };
  const ShellNumber yes = side(condition.value != 0);
  if (!takes(":")) stop("has a '?' without its ':'");
  if (is_stuck_) return {};
  const ShellNumber no = side(condition.value == 0);
  if (!is_known) return condition;
  return condition.value != 0 ? yes : no;
}

const char* ShellArithmetic::operator_ahead(int least, int& its_level) {
  skip();
  const std::string_view rest = reader_.text_.substr(std::min(reader_.at_, reader_.text_.size()));
  for (const ArithmeticOperator& op : kArithmeticOperators) {
    if (!rest.starts_with(op.text)) continue;
    its_level = op.level;
    return op.level >= least ? op.text : nullptr;
  }
  return nullptr;
}

ShellNumber ShellArithmetic::level(int least) {
  if (!reader_.goes_deeper()) return {};
  ShellNumber left = unary();
  int op_level = 0;
  for (const char* op = nullptr; !is_stuck_ && (op = operator_ahead(least, op_level)) != nullptr;) {
    const std::string_view text = op;
    reader_.take(text);
    const bool is_or = text == "||";
    const bool is_logic = is_or || text == "&&";
    const bool is_decided = is_logic && left.unknown.empty() && (left.value != 0) == is_or;
    const bool is_open = is_logic && !left.unknown.empty();
    num_skipped_ += is_decided ? 1 : 0;
    num_maybe_ += is_open ? 1 : 0;
    const ShellNumber right = level(op_level == kPowerLevel ? op_level : op_level + 1);
    num_skipped_ -= is_decided ? 1 : 0;
    num_maybe_ -= is_open ? 1 : 0;
    if (is_decided) {
      left = {.value = is_or ? 1 : 0};
    } else if (!left.unknown.empty() || !right.unknown.empty()) {
      left = {.unknown = left.unknown.empty() ? right.unknown : left.unknown};
    } else {
      left.value = apply(text, left.value, right.value);
    }
  }
  --reader_.depth_;
  return left;
}

ShellNumber ShellArithmetic::unary() {
  skip();
  for (const std::string_view step : {"++", "--"}) {
    const std::string_view rest = reader_.text_.substr(std::min(reader_.at_, reader_.text_.size()));
    if (!rest.starts_with(step)) continue;
    // Before what is no name, these are two signs.
    size_t ahead = 2;
    while (std::isspace(static_cast<unsigned char>(reader_.peek(ahead))) != 0) ++ahead;
    const char c = reader_.peek(ahead);
    if (!is_name_letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0) break;
    reader_.take(step);
    skip();
    const Name name = read_name();
    return assign(name, stepped(read(name), step));
  }
  const char c = reader_.peek();
  if (c != '-' && c != '+' && c != '!' && c != '~') return primary();
  reader_.next();
  if (!reader_.goes_deeper()) return {};
  ShellNumber value = unary();
  --reader_.depth_;
  if (!value.unknown.empty()) return value;
  if (c == '!') value.value = static_cast<int64_t>(value.value == 0);
  if (c == '~') value.value = ~value.value;
  if (c == '-') value.value = apply("-", 0, value.value);
  return value;
}

ShellNumber ShellArithmetic::stepped(ShellNumber value, std::string_view step) {
  if (value.unknown.empty()) value.value = apply(step.substr(0, 1), value.value, 1);
  return value;
}

ShellNumber ShellArithmetic::primary() {
  const char c = reader_.peek();
  if (c == '(') {
    reader_.next();
    const ShellNumber value = list();
    if (!is_stuck_ && !takes(")")) stop("has a bracket that is not closed");
    return value;
  }
  if (c == '$' || c == '"' || c == '`') return number(quoted_text());
  if (c == MarkedText::kHole || c == MarkedText::kUnset) {
    reader_.next();
    return {.unknown = hole_.empty() ? "a letter that is no text" : hole_};
  }
  if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
    MarkedText text;
    while (is_name_letter(reader_.peek()) || reader_.peek() == '#' || reader_.peek() == '@')
      text.add(reader_.next(), reader_.here());
    if (text.text.back() == '#' && reader_.peek() == '$') text.add(quoted_text());  // 10#$N
    return number(text);
  }
  const Name name = read_name();
  if (name.text.empty()) {
    stop(fmt::format("has {} where a number is expected", reader_.is_over() ? "nothing" : in_quotes({&c, 1})));
    return {};
  }
  return named(name);
}

MarkedText ShellArithmetic::quoted_text() {
  std::vector<MarkedText> fields;
  bool is_open = false;
  reader_.word_part(fields, is_open, /*is_quoted=*/true);
  return fields.empty() ? MarkedText{} : std::move(fields.back());
}

ShellArithmetic::Name ShellArithmetic::read_name() {
  Name name;
  while (is_name_letter(reader_.peek())) name.text += reader_.next();
  if (!name.text.empty() && reader_.peek() == '[') {
    reader_.next();
    name.is_item = true;
    list();  // which item is not followed
    if (!is_stuck_ && !takes("]")) stop("has a bracket [ that is not closed");
  }
  return name;
}

/// What a name is worth, or what it is set to by the operator behind it.
ShellNumber ShellArithmetic::named(const Name& name) {
  skip();
  for (const std::string_view step : {"++", "--"}) {
    if (!reader_.take(step)) continue;
    ShellNumber before = read(name);
    assign(name, stepped(before, step));
    return before;
  }
  if (reader_.peek() == '=' && reader_.peek(1) != '=') {
    reader_.next();
    return assign(name, assignment());
  }
  for (const std::string_view op : {"<<=", ">>=", "*=", "/=", "%=", "+=", "-=", "&=", "^=", "|="}) {
    if (!reader_.take(op)) continue;
    const ShellNumber before = read(name);
    const ShellNumber by = assignment();
    if (!before.unknown.empty()) return assign(name, before);
    if (!by.unknown.empty()) return assign(name, by);
    return assign(name, {.value = apply(op.substr(0, op.size() - 1), before.value, by.value)});
  }
  return read(name);
}

ShellNumber ShellArithmetic::read(const Name& name) {
  if (num_skipped_ > 0) return {};
  if (name.is_item)
    return {.unknown = fmt::format("an item of {} in line {}", printable(name.text), reader_.here().line)};
  ShellValue own;
  const ShellValue& value = reader_.value_of(name.text, reader_.here(), own);
  if (!value.unknown.empty()) return {.unknown = value.unknown};
  return value.items.empty() ? ShellNumber{} : number(value.items.front());
}

ShellNumber ShellArithmetic::assign(const Name& name, ShellNumber value) {
  if (num_skipped_ > 0 || !problem_.empty() || reader_.is_dry_) return value;
  const ShellValue* known = reader_.variables_.find(name.text);
  const bool is_array = name.is_item || (known != nullptr && known->is_array);
  const std::string why = num_maybe_ > 0
                              ? fmt::format("the arithmetic in line {}, which may set it", reader_.here().line)
                          : is_array ? fmt::format("an item that line {} sets", reader_.here().line)
                                     : value.unknown;
  MarkedText text;
  if (why.empty()) text.add(std::to_string(value.value), {reader_.file_, 0});
  if (why.empty()) {
    reader_.set(name.text, {.items = {text}});
  } else {
    reader_.set(name.text, {.is_array = is_array, .unknown = why});
  }
  return value;
}

ShellNumber ShellArithmetic::number(const MarkedText& text) {
  if (num_skipped_ > 0) return {};
  if (!text.unknown.empty()) return {.unknown = text.unknown};
  reader_.charge(text.text.size());
  std::string_view digits = text.text;
  digits.remove_prefix(std::min(digits.find_first_not_of(" \t\n"), digits.size()));
  digits = digits.substr(0, digits.find_last_not_of(" \t\n") + 1);
  if (digits.empty()) return {};
  const bool is_negative = digits.front() == '-';
  if (is_negative || digits.front() == '+') digits.remove_prefix(1);
  int base = 10;
  const size_t mark = digits.find('#');
  if (mark != std::string_view::npos) {
    base = 0;
    for (const char c : digits.substr(0, std::min<size_t>(mark, 3)))
      base = 10 * base + (c < '0' || c > '9' ? 1000 : c - '0');
    digits.remove_prefix(mark + 1);
    if (base < 2 || base > 64 || mark > 2) {
      fail("has a number of a base that is not from 2 to 64");
      return {};
    }
  } else if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits.front() == '0') {
    base = 8;
  }
  int64_t value = 0;
  for (const char c : digits) {
    const int digit = digit_of(c, base);
    if (digit >= base) {
      fail(base == 8 && digit < 10
               ? fmt::format("has {}, which begins with 0 and is no octal number", in_quotes(text.text))
               : kNoNumber);
      return {};
    }
    if (__builtin_mul_overflow(value, int64_t{base}, &value) || __builtin_add_overflow(value, int64_t{digit}, &value)) {
      fail(kTooLarge);
      return {};
    }
  }
  if (digits.empty()) fail(kNoNumber);
  return {.value = is_negative ? -value : value};
}

int64_t ShellArithmetic::apply(std::string_view op, int64_t a, int64_t b) {
  int64_t value = 0;
  bool is_too_large = false;
  if (op == "+") is_too_large = __builtin_add_overflow(a, b, &value);
  if (op == "-") is_too_large = __builtin_sub_overflow(a, b, &value);
  if (op == "*") is_too_large = __builtin_mul_overflow(a, b, &value);
  if (op == "/" || op == "%") {
    if (b == 0) {
      fail("divides by zero");
    } else if (b == -1) {
      is_too_large = op == "/" && __builtin_sub_overflow(int64_t{0}, a, &value);
    } else {
      value = op == "/" ? a / b : a % b;
    }
  }
  if (op == "**") {
    if (b < 0) fail("has an exponent below 0");
    value = 1;
    // By squares. What is larger than 64 bits counts only where it becomes a factor.
    bool is_square_too_large = false;
    for (int64_t square = a; b > 0; b /= 2) {
      if (b % 2 == 1) is_too_large |= is_square_too_large || __builtin_mul_overflow(value, square, &value);
      is_square_too_large |= __builtin_mul_overflow(square, square, &square);
    }
  }
  if (op == "<<" || op == ">>") {
    if (b < 0 || b > 63) {
      fail("shifts by a number that is not from 0 to 63");
    } else if (op == "<<") {
      value = static_cast<int64_t>(static_cast<uint64_t>(a) << b);
      is_too_large = (value >> b) != a;
    } else {
      value = a >> b;
    }
  }
  if (op == "==") value = static_cast<int64_t>(a == b);
  if (op == "!=") value = static_cast<int64_t>(a != b);
  if (op == "<=") value = static_cast<int64_t>(a <= b);
  if (op == ">=") value = static_cast<int64_t>(a >= b);
  if (op == "<") value = static_cast<int64_t>(a < b);
  if (op == ">") value = static_cast<int64_t>(a > b);
  if (op == "&&") value = static_cast<int64_t>(a != 0 && b != 0);
  if (op == "||") value = static_cast<int64_t>(a != 0 || b != 0);
  if (op == "&") value = a & b;
  if (op == "|") value = a | b;
  if (op == "^") value = a ^ b;
  if (is_too_large) fail(kTooLarge);
  return value;
}

MarkedText ShellReader::arithmetic(std::string_view end) {
  const Place begin = here();
  const bool was_pattern = std::exchange(is_pattern_, false);
  ShellArithmetic expression(*this, /*hole=*/"", is_dry_);
  const ShellNumber value = expression.value();
  is_pattern_ = was_pattern;
  while (!is_over() && std::isspace(static_cast<unsigned char>(peek()))) next();
  const bool is_read = text_.substr(std::min(at_, text_.size())).starts_with(end);
  if (!error_ && !is_dry_ && is_read && !expression.problem().empty() && value.unknown.empty())
    fail(begin, fmt::format("the arithmetic {}", expression.problem()), "Write the number that it stands for.");
  if (!error_ && !take(end)) {
    // What is no arithmetic is read over: so far as it was read, it happened.
    int open = 0;
    while (!is_over() && !(open == 0 && text_.substr(at_, end.size()) == end)) {
      const char c = next();
      open += c == '(' ? 1 : c == ')' ? -1 : 0;
      if (open < 0) break;
    }
    if (!take(end)) fail(begin, "$((, or ((, is not closed", "Close it with )).");
    return MarkedText::not_known(fmt::format("arithmetic of a kind that is not read, in line {}", begin.line));
  }
  if (!value.unknown.empty()) return MarkedText::not_known(value.unknown);
  MarkedText result;
  result.add(std::to_string(value.value), {file_, 0});
  return result;
}

MarkedText ShellReader::arithmetic_of(const MarkedText& text) {
  charge(text.text.size());
  if (error_) return {};
  const Place begin = here();
  const auto outer = std::tuple(text_, at_, line_);
  text_ = text.text, at_ = 0;
  ShellArithmetic expression(*this, text.unknown, is_dry_);
  const bool is_empty = text.text.find_first_not_of(" \t\n") == std::string::npos;
  const ShellNumber value = is_empty ? ShellNumber{} : expression.value();
  while (!is_over() && std::isspace(static_cast<unsigned char>(peek()))) next();
  const bool is_read = is_over();
  std::tie(text_, at_, line_) = outer;
  if (!value.unknown.empty()) return MarkedText::not_known(value.unknown);
  if (!expression.problem().empty() || !is_read) {
    fail(begin,
         fmt::format("the arithmetic {} {}", in_quotes(text.text),
                     expression.problem().empty() ? "does not end where it should" : expression.problem()),
         "Write the number that it stands for.");
  }
  MarkedText result;
  result.add(std::to_string(value.value), {file_, 0});
  return result;
}

}  // namespace weft
