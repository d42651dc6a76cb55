#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_run.h"

namespace weft {
namespace {

using Value = TemplateValue;

constexpr int64_t kLongestRange = 1'000'000;

/// Places of a Python slice, in order.
std::vector<int64_t> slice_places(int64_t size, const Value& from, const Value& to, const Value& by) {
  const auto integer = [](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    if (value.as<int64_t>() == nullptr) throw TemplateFault(fmt::format("cuts by {}", value.kind()));
    return std::clamp<int64_t>(*value.as<int64_t>(), -(int64_t{1} << 40), int64_t{1} << 40);
  };
  const int64_t step = integer(by, 1);
  if (step == 0) throw TemplateFault("cuts in steps of zero");
  const auto bound = [&](const Value& value, int64_t fallback) {
    if (value.is_none()) return fallback;
    int64_t at = integer(value, 0);
    if (at < 0) at += size;
    return std::clamp(at, step > 0 ? int64_t{0} : int64_t{-1}, step > 0 ? size : size - 1);
  };
  const int64_t begin = bound(from, step > 0 ? 0 : size - 1), end = bound(to, step > 0 ? size : -1);
  std::vector<int64_t> places;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) places.push_back(i);
  return places;
}

int64_t floored(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

[[noreturn]] void too_large() {
  throw TemplateFault("computes a number that is too large");
}

Value computed(const std::string& mark, int64_t a, int64_t b) {
  int64_t result = 0;
  if (mark == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (mark == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (mark == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  if (mark == "+" || mark == "-" || mark == "*") too_large();
  if (mark == "**") {
    const double power = std::pow(static_cast<double>(a), static_cast<double>(b));
    if (b < 0) return power;
    if (!(std::fabs(power) < 9e15)) too_large();
    return static_cast<int64_t>(power);
  }
  if (b == 0) throw TemplateFault("divides by zero");
  if (mark == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return mark == "%" ? Value(int64_t{0}) : computed("-", 0, a);
  return mark == "//" ? floored(a, b) : a - floored(a, b) * b;
}

Value computed(const std::string& mark, double a, double b) {
  if (mark == "+") return a + b;
  if (mark == "-") return a - b;
  if (mark == "*") return a * b;
  if (mark == "**") return std::pow(a, b);
  if (b == 0) throw TemplateFault("divides by zero");
  if (mark == "/") return a / b;
  return mark == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

}  // namespace

Value TemplateRun::evaluate(const TemplateExpression& expression) {
  try {
    count_step(expression.line);
    return evaluate_here(expression);
  } catch (const TemplateFault& fault) {
    if (fault.line > 0) throw;
    throw TemplateFault(fault.what(), expression.line);
  }
}

Value TemplateRun::evaluate_here(const TemplateExpression& expression) {
  const auto part = [&](size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case TemplateExpression::Kind::kLiteral:
      return expression.value;
    case TemplateExpression::Kind::kName:
      return look_up(expression.text);
    case TemplateExpression::Kind::kList:
    case TemplateExpression::Kind::kTuple: {
      Value::List list{.items = {}, .is_tuple = expression.kind == TemplateExpression::Kind::kTuple};
      for (size_t i = 0; i < expression.parts.size(); ++i) list.items.push_back(part(i));
      return list;
    }
    case TemplateExpression::Kind::kDict: {
      Value::Dict dict;
      for (size_t i = 0; i < expression.parts.size(); i += 2) {
        const Value key = part(i);
        if (key.as<std::string>() == nullptr) throw TemplateFault(fmt::format("has {} for a key", key.kind()));
        dict.set(*key.as<std::string>(), part(i + 1));
      }
      return dict;
    }
    case TemplateExpression::Kind::kAttribute:
      return template_attribute(part(0), expression.text);
    case TemplateExpression::Kind::kItem:
      return template_item(part(0), part(1));
    case TemplateExpression::Kind::kSlice:
      return evaluate_slice(expression);
    case TemplateExpression::Kind::kCall:
      return evaluate_call(expression);
    case TemplateExpression::Kind::kFilter:
      return apply_template_filter(expression.text, part(0), arguments_of(expression));
    case TemplateExpression::Kind::kTest:
      return passes_template_test(expression.text, part(0), arguments_of(expression));
    case TemplateExpression::Kind::kNot:
      return !part(0).is_true();
    case TemplateExpression::Kind::kNegative: {
      const Value value = part(0);
      if (const auto* integer = value.as<int64_t>()) return computed("-", int64_t{0}, *integer);
      if (!value.is_number()) throw TemplateFault(fmt::format("negates {}", value.kind()));
      return -value.number();
    }
    case TemplateExpression::Kind::kAnd: {
      Value left = part(0);
      return left.is_true() ? part(1) : left;
    }
    case TemplateExpression::Kind::kOr: {
      Value left = part(0);
      return left.is_true() ? left : part(1);
    }
    case TemplateExpression::Kind::kCompare:
      return evaluate_compare(expression);
    case TemplateExpression::Kind::kBinary:
      return evaluate_binary(expression);
    case TemplateExpression::Kind::kChoice:
      if (part(1).is_true()) return part(0);
      return expression.parts[2] != nullptr ? part(2) : Value::undefined("a choice without 'else'");
  }
  return {};
}

Value TemplateRun::evaluate_slice(const TemplateExpression& expression) {
  const auto part = [&](size_t i) { return expression.parts[i] != nullptr ? evaluate(*expression.parts[i]) : Value(); };
  const Value whole = part(0), from = part(1), to = part(2), by = part(3);
  if (const auto* text = whole.as<std::string>()) {
    const std::u32string characters = characters_of(*text);
    std::u32string cut;
    for (const int64_t i : slice_places(static_cast<int64_t>(characters.size()), from, to, by))
      cut += characters[static_cast<size_t>(i)];
    return text_of(cut);
  }
  const Value::List* list = whole.list();
  if (list == nullptr) throw TemplateFault(fmt::format("cuts {}", whole.kind()));
  Value::List cut{.items = {}, .is_tuple = list->is_tuple};
  for (const int64_t i : slice_places(static_cast<int64_t>(list->items.size()), from, to, by))
    cut.items.push_back(list->items[static_cast<size_t>(i)]);
  return cut;
}

Value TemplateRun::evaluate_compare(const TemplateExpression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& name = expression.operators[i];
    Value right = evaluate(*expression.parts[i + 1]);
    const bool holds = name == "=="       ? left.equals(right)
                       : name == "!="     ? !left.equals(right)
                       : name == "in"     ? template_contains(right, left)
                       : name == "not in" ? !template_contains(right, left)
                       : name == "<"      ? template_order(left, right) < 0
                       : name == ">"      ? template_order(left, right) > 0
                       : name == "<="     ? template_order(left, right) <= 0
                                          : template_order(left, right) >= 0;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value TemplateRun::evaluate_binary(const TemplateExpression& expression) {
  const Value left = evaluate(*expression.parts[0]), right = evaluate(*expression.parts[1]);
  const std::string& mark = expression.text;
  if (mark == "~") return left.text() + right.text();
  if (left.is_number() && right.is_number()) {
    const bool is_whole = left.as<double>() == nullptr && right.as<double>() == nullptr;
    if (!is_whole) return computed(mark, left.number(), right.number());
    return computed(mark, static_cast<int64_t>(left.as<int64_t>() ? *left.as<int64_t>() : *left.as<bool>()),
                    static_cast<int64_t>(right.as<int64_t>() ? *right.as<int64_t>() : *right.as<bool>()));
  }
  const auto *a = left.as<std::string>(), *b = right.as<std::string>();
  if (mark == "+" && a != nullptr && b != nullptr) return *a + *b;
  if (mark == "+" && left.list() != nullptr && right.list() != nullptr) {
    Value::List both = *left.list();
    both.items.insert(both.items.end(), right.list()->items.begin(), right.list()->items.end());
    return both;
  }
  if (mark == "*" && a != nullptr && right.as<int64_t>() != nullptr) {
    const int64_t times = std::max<int64_t>(*right.as<int64_t>(), 0);
    if (static_cast<double>(times) * static_cast<double>(a->size()) > 1e7)
      throw TemplateFault("repeats a text too often");
    std::string repeated;
    for (int64_t i = 0; i < times && !a->empty(); ++i) repeated += *a;
    return repeated;
  }
  throw TemplateFault(fmt::format("has '{}' between {} and {}", mark, left.kind(), right.kind()));
}

TemplateArguments TemplateRun::arguments_of(const TemplateExpression& expression) {
  TemplateArguments arguments;
  for (const TemplateExpression::Argument& argument : expression.arguments) {
    Value value = evaluate(*argument.value);
    if (argument.name.empty()) {
      arguments.places.push_back(std::move(value));
    } else {
      arguments.names.emplace_back(argument.name, std::move(value));
    }
  }
  return arguments;
}

Value TemplateRun::evaluate_call(const TemplateExpression& expression) {
  const Value function = evaluate(*expression.parts[0]);
  const TemplateArguments arguments = arguments_of(expression);
  if (const auto* macro = function.as<Value::Macro>()) return call_macro(*(*macro)->statement, arguments);
  const auto* known = function.as<Value::Function>();
  if (known == nullptr) throw TemplateFault(fmt::format("calls {}", function.kind()));
  return known->self != nullptr ? call_template_method(*known->self, known->name, arguments)
                                : call_global(known->name, arguments);
}

Value TemplateRun::call_global(const std::string& name, const TemplateArguments& arguments) {
  if (name == "raise_exception") {
    const Value* message = arguments.find(0, "message");
    throw TemplateFault("says: " + printable(message != nullptr ? message->text() : "", 200));
  }
  if (name == "namespace" || name == "dict") {
    Value::Dict fields{.items = arguments.names, .is_namespace = name == "namespace"};
    if (!arguments.places.empty()) throw TemplateFault(fmt::format("calls '{}' with values that have no name", name));
    return fields;
  }
  std::vector<int64_t> bounds;
  for (const Value& value : arguments.places) {
    if (value.as<int64_t>() == nullptr) throw TemplateFault(fmt::format("calls 'range' with {}", value.kind()));
    bounds.push_back(*value.as<int64_t>());
  }
  if (bounds.empty() || bounds.size() > 3) throw TemplateFault("calls 'range' with other than one to three numbers");
  const int64_t begin = bounds.size() > 1 ? bounds[0] : 0, end = bounds.size() > 1 ? bounds[1] : bounds[0];
  const int64_t step = bounds.size() > 2 ? bounds[2] : 1;
  if (step == 0) throw TemplateFault("calls 'range' with steps of zero");
  const double count = (static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step);
  if (count > static_cast<double>(kLongestRange))
    throw TemplateFault(fmt::format("calls 'range' for more than {} numbers", kLongestRange));
  Value::List list;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) list.items.emplace_back(i);
  return list;
}

}  // namespace weft
