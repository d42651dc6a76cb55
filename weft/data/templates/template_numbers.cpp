#include "weft/data/templates/template_numbers.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

[[noreturn]] void too_large() {
  throw TemplateFault("computes a number that is too large (integers have 64 bits)");
}

[[noreturn]] void by_zero() {
  throw TemplateFault("divides by zero");
}

int64_t floored(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

TemplateValue power(double a, double b) {
  if (a == 0 && b < 0) by_zero();
  const double result = std::pow(a, b);
  if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
    throw TemplateFault("computes a power that is no real number");
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    throw TemplateFault("computes a power that is too large");
  return result;
}

TemplateValue power(int64_t base, int64_t exponent) {
  if (exponent < 0) return power(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) too_large();
  }
}

TemplateValue computed(const std::string& mark, int64_t a, int64_t b) {
  int64_t result = 0;
  if (mark == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (mark == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (mark == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  if (mark == "+" || mark == "-" || mark == "*") too_large();
  if (mark == "**") return power(a, b);
  if (b == 0) by_zero();
  if (mark == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return mark == "%" ? TemplateValue(int64_t{0}) : computed("-", 0, a);
  return mark == "//" ? floored(a, b) : a - floored(a, b) * b;
}

TemplateValue computed(const std::string& mark, double a, double b) {
  if (mark == "+") return a + b;
  if (mark == "-") return a - b;
  if (mark == "*") return a * b;
  if (mark == "**") return power(a, b);
  if (b == 0) by_zero();
  if (mark == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest == 0) {
    rest = std::copysign(0.0, b);
  } else if ((b < 0) != (rest < 0)) {
    rest += b;
  }
  if (mark == "%") return rest;
  const double quotient = (a - rest) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/// A boolean counts as 0 or 1.
std::optional<int64_t> integer_in(const TemplateValue& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  const auto* integer = value.as<int64_t>();
  return integer != nullptr ? std::optional(*integer) : std::nullopt;
}

/// Without the underscores between digits, which may be letters; nothing where they stand elsewhere.
std::optional<std::string> without_underscores(std::string_view text, bool allows_letters) {
  const auto is_digit = [&](size_t i) {
    if (i >= text.size()) return false;
    const auto byte = static_cast<unsigned char>(text[i]);
    return (allows_letters ? std::isalnum(byte) : std::isdigit(byte)) != 0;
  };
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return digits;
}

bool is_word(std::string_view text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != word[i]) return false;
  }
  return true;
}

/// Digits with a point and an exponent.
bool is_decimal(std::string_view text) {
  size_t i = 0, num_digits = 0;
  const auto skip_digits = [&] {
    size_t count = 0;
    for (; i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0; ++i) ++count;
    return count;
  };
  num_digits = skip_digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    num_digits += skip_digits();
  }
  if (num_digits == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (skip_digits() == 0) return false;
  }
  return i == text.size();
}

}  // namespace

TemplateValue template_arithmetic(const std::string& mark, const TemplateValue& a, const TemplateValue& b) {
  const std::optional<int64_t> left = integer_in(a), right = integer_in(b);
  return left && right ? computed(mark, *left, *right) : computed(mark, a.number(), b.number());
}

TemplateValue template_negative(const TemplateValue& value) {
  if (!value.is_number()) throw TemplateFault(fmt::format("negates {}", value.kind()));
  if (const auto integer = integer_in(value)) return computed("-", int64_t{0}, *integer);
  return -value.number();
}

TemplateValue template_absolute(const TemplateValue& value) {
  if (!value.is_number()) throw TemplateFault(fmt::format("takes 'abs' of {}", value.kind()));
  if (const auto integer = integer_in(value)) return *integer < 0 ? computed("-", int64_t{0}, *integer) : *integer;
  return std::fabs(value.number());
}

std::optional<int64_t> python_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) return std::nullopt;
  text = stripped(text, std::nullopt, true, true);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  const char mark = text.size() > 1 && text[0] == '0' ? static_cast<char>(text[1] | 0x20) : '0';
  const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (marked != 0 && (base == 0 || base == marked)) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    base = marked;
  }
  const std::optional<std::string> digits = without_underscores(text, /*allows_letters=*/true);
  if (!digits || digits->empty()) return std::nullopt;
  const bool begins_with_zero = digits->front() == '0' && digits->find_first_not_of('0') != std::string::npos;
  if (base == 0 && begins_with_zero) return std::nullopt;
  if (base == 0) base = 10;
  int64_t number = 0;
  bool overflows = false;
  for (const char c : *digits) {
    const auto byte = static_cast<unsigned char>(c);
    const int digit = std::isdigit(byte) != 0 ? c - '0' : std::isalpha(byte) != 0 ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    overflows = overflows || __builtin_mul_overflow(number, base, &number) ||
                __builtin_sub_overflow(number, int64_t{digit}, &number);
  }
  if (overflows || (!is_negative && number == INT64_MIN)) too_large();
  return is_negative ? number : -number;
}

std::optional<double> python_float_of(std::string_view text) {
  text = stripped(text, std::nullopt, true, true);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  if (is_word(text, "inf") || is_word(text, "infinity")) {
    number = HUGE_VAL;
  } else if (is_word(text, "nan")) {
    number = NAN;
  } else {
    const std::optional<std::string> digits = without_underscores(text, /*allows_letters=*/false);
    if (!digits || !is_decimal(*digits)) return std::nullopt;
    number = std::strtod(digits->c_str(), nullptr);
  }
  return is_negative ? -number : number;
}

int64_t whole_part(double value) {
  if (!(value >= -0x1p63 && value < 0x1p63)) too_large();
  return static_cast<int64_t>(value);
}

}  // namespace weft
