#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_numbers.h"
#include "weft/data/templates/template_run.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

using Value = TemplateValue;

constexpr uint64_t kLongestRange = 1'000'000;

/// Places of a Python slice: `begin`, and each `step` further up to `end`.
struct Slice {
  int64_t begin = 0, end = 0, step = 1;
};

Slice slice_of(int64_t size, const Value& from, const Value& to, const Value& by) {
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
  return {bound(from, step > 0 ? 0 : size - 1), bound(to, step > 0 ? size : -1), step};
}

template <typename Visit>
void for_each_place(const Slice& slice, const Visit& visit) {
  for (int64_t i = slice.begin; slice.step > 0 ? i < slice.end : i > slice.end; i += slice.step)
    visit(static_cast<size_t>(i));
}

Value cut_text(const std::string& text, const Value& from, const Value& to, const Value& by, TemplateWork& work) {
  work.bytes(text.size());
  const Slice slice = slice_of(static_cast<int64_t>(characters_in(text)), from, to, by);
  if (slice.step == 1) {
    if (slice.end <= slice.begin) return "";
    const size_t begin = offset_of_character(text, static_cast<size_t>(slice.begin));
    const std::string_view rest = std::string_view(text).substr(begin);
    return work.text(rest.substr(0, offset_of_character(rest, static_cast<size_t>(slice.end - slice.begin))));
  }
  // Four bytes for each character of which it takes some.
  work.bytes(8 * text.size());
  const std::u32string characters = characters_of(text);
  std::u32string cut;
  for_each_place(slice, [&](size_t i) { cut += characters[i]; });
  return work.text(text_of(cut));
}

Value repeated(const std::string& text, int64_t count, TemplateWork& work) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  if (!text.empty() && times > TemplateWork::kMostTextBytes / text.size())
    throw TemplateFault(fmt::format("repeats a text too often, to more than {} bytes", TemplateWork::kMostTextBytes));
  std::string repeated;
  for (uint64_t i = 0; i < times && !text.empty(); ++i) work.grow(repeated, text);
  return repeated;
}

Value appended(const Value& left, const Value& right, TemplateWork& work) {
  const Value::List *a = left.list(), *b = right.list();
  if (a->is_tuple != b->is_tuple) throw TemplateFault("has '+' between a list and a tuple");
  std::vector<Value> both = template_items(left, work);
  for (const Value& item : b->items) work.grow(both, item);
  return TemplateWork::list(std::move(both), a->is_tuple);
}

Value joined_by(const std::string& mark, const Value& left, const Value& right, TemplateWork& work) {
  if (left.is_number() && right.is_number()) return template_arithmetic(mark, left, right);
  const auto *a = left.as<std::string>(), *b = right.as<std::string>();
  if (mark == "+" && a != nullptr && b != nullptr) {
    std::string both;
    work.grow(both, *a);
    work.grow(both, *b);
    return both;
  }
  if (mark == "+" && left.list() != nullptr && right.list() != nullptr) return appended(left, right, work);
  if (mark == "*" && a != nullptr && right.as<int64_t>() != nullptr) return repeated(*a, *right.as<int64_t>(), work);
  throw TemplateFault(fmt::format("has '{}' between {} and {}", mark, left.kind(), right.kind()));
}

Value range_of(const TemplateCall& call) {
  const int64_t first = call.integer(0, 0), step = call.integer(2, 1);
  const int64_t begin = call.given(1) != nullptr ? first : 0;
  const int64_t end = call.given(1) != nullptr ? call.integer(1, 0) : first;
  if (step == 0) throw TemplateFault("calls 'range' with steps of zero");
  const bool is_empty = step > 0 ? begin >= end : begin <= end;
  if (is_empty) return TemplateWork::list({});
  // Differences of 64-bit numbers fit without a sign.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)
                                     : static_cast<uint64_t>(begin) - static_cast<uint64_t>(end);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (distance - 1) / stride + 1;
  if (count > kLongestRange) throw TemplateFault(fmt::format("calls 'range' for more than {} numbers", kLongestRange));
  std::vector<Value> numbers;
  for (uint64_t i = 0; i < count; ++i)
    call.work().grow(numbers, static_cast<int64_t>(static_cast<uint64_t>(begin) + i * static_cast<uint64_t>(step)));
  return TemplateWork::list(std::move(numbers));
}

Value fields_of(const std::string& name, const TemplateArguments& arguments) {
  using Kind = Value::Dict::Kind;
  if (!arguments.places.empty()) throw TemplateFault(fmt::format("calls '{}' with values that have no name", name));
  Value::Dict fields(name == "namespace" ? Kind::kNamespace : Kind::kMapping);
  for (const auto& [field, value] : arguments.names) fields.set(field, value);
  return fields;
}

}  // namespace

Value TemplateRun::evaluate(const TemplateExpression& expression) {
  try {
    const TemplateWork::Level level(work_);
    work_.steps(1);
    return evaluate_here(expression);
  } catch (const TemplateFault& fault) {
    if (fault.line > 0) throw;
    throw TemplateFault(fault.what(), expression.line);
  }
}

Value TemplateRun::evaluate_here(const TemplateExpression& expression) {
  switch (expression.kind) {
    case TemplateExpression::Kind::kLiteral:
      return expression.value;
    case TemplateExpression::Kind::kName:
      return look_up(expression.text);
    case TemplateExpression::Kind::kList:
    case TemplateExpression::Kind::kTuple:
      return evaluate_list(expression);
    case TemplateExpression::Kind::kDict:
      return evaluate_dict(expression);
    case TemplateExpression::Kind::kAttribute:
      work_.bytes(expression.text.size());
      return template_attribute(evaluate(*expression.parts[0]), expression.text);
    case TemplateExpression::Kind::kItem: {
      const Value whole = evaluate(*expression.parts[0]);
      return template_item(whole, evaluate(*expression.parts[1]), work_);
    }
    case TemplateExpression::Kind::kSlice:
      return evaluate_slice(expression);
    case TemplateExpression::Kind::kCall:
      return evaluate_call(expression);
    case TemplateExpression::Kind::kFilter: {
      const Value value = evaluate(*expression.parts[0]);
      return apply_template_filter(expression.text, value, arguments_of(expression), work_);
    }
    case TemplateExpression::Kind::kTest: {
      const Value value = evaluate(*expression.parts[0]);
      return passes_template_test(expression.text, value, arguments_of(expression), work_);
    }
    case TemplateExpression::Kind::kNot:
      return !evaluate(*expression.parts[0]).is_true();
    case TemplateExpression::Kind::kNegative:
      return template_negative(evaluate(*expression.parts[0]));
    case TemplateExpression::Kind::kAnd:
    case TemplateExpression::Kind::kOr:
      return evaluate_logic(expression);
    case TemplateExpression::Kind::kCompare:
      return evaluate_compare(expression);
    case TemplateExpression::Kind::kBinary:
      return evaluate_binary(expression);
    case TemplateExpression::Kind::kChoice:
      if (evaluate(*expression.parts[1]).is_true()) return evaluate(*expression.parts[0]);
      return expression.parts[2] != nullptr ? evaluate(*expression.parts[2])
                                            : Value::undefined("a choice without 'else'");
  }
  return {};
}

Value TemplateRun::evaluate_list(const TemplateExpression& expression) {
  std::vector<Value> items;
  for (const TemplateExpressionPtr& part : expression.parts) work_.grow(items, evaluate(*part));
  return TemplateWork::list(std::move(items), expression.kind == TemplateExpression::Kind::kTuple);
}

Value TemplateRun::evaluate_dict(const TemplateExpression& expression) {
  Value::Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    if (key.as<std::string>() == nullptr) throw TemplateFault(fmt::format("has {} for a key", key.kind()));
    work_.bytes(key.as<std::string>()->size());
    dict.set(*key.as<std::string>(), evaluate(*expression.parts[i + 1]));
  }
  return dict;
}

Value TemplateRun::evaluate_slice(const TemplateExpression& expression) {
  const auto part = [&](size_t i) { return expression.parts[i] != nullptr ? evaluate(*expression.parts[i]) : Value(); };
  const Value whole = part(0), from = part(1), to = part(2), by = part(3);
  if (const auto* text = whole.as<std::string>()) return cut_text(*text, from, to, by, work_);
  const Value::List* list = whole.list();
  if (list == nullptr) throw TemplateFault(fmt::format("cuts {}", whole.kind()));
  std::vector<Value> cut;
  for_each_place(slice_of(static_cast<int64_t>(list->items.size()), from, to, by),
                 [&](size_t i) { work_.grow(cut, list->items[i]); });
  return TemplateWork::list(std::move(cut), list->is_tuple);
}

Value TemplateRun::evaluate_logic(const TemplateExpression& expression) {
  const bool stops_at = expression.kind == TemplateExpression::Kind::kOr;
  Value value;
  for (const TemplateExpressionPtr& part : expression.parts) {
    value = evaluate(*part);
    if (value.is_true() == stops_at) break;
  }
  return value;
}

Value TemplateRun::evaluate_compare(const TemplateExpression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& name = expression.operators[i];
    Value right = evaluate(*expression.parts[i + 1]);
    const bool holds = name == "=="       ? left.equals(right, work_)
                       : name == "!="     ? !left.equals(right, work_)
                       : name == "in"     ? template_contains(right, left, work_)
                       : name == "not in" ? !template_contains(right, left, work_)
                       : name == "<"      ? template_order(left, right, work_) < 0
                       : name == ">"      ? template_order(left, right, work_) > 0
                       : name == "<="     ? template_order(left, right, work_) <= 0
                                          : template_order(left, right, work_) >= 0;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value TemplateRun::evaluate_binary(const TemplateExpression& expression) {
  Value left = evaluate(*expression.parts[0]);
  if (expression.operators[0] == "~") {
    // All of a chain is "~": they are joined once.
    std::string text = left.text(work_);
    for (size_t i = 1; i < expression.parts.size(); ++i) evaluate(*expression.parts[i]).write_text(text, work_);
    return text;
  }
  for (size_t i = 0; i < expression.operators.size(); ++i)
    left = joined_by(expression.operators[i], left, evaluate(*expression.parts[i + 1]), work_);
  return left;
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
  return known->self != nullptr ? call_template_method(*known->self, known->name, arguments, work_)
                                : call_global(known->name, arguments);
}

Value TemplateRun::call_global(const std::string& name, const TemplateArguments& arguments) {
  if (name == "namespace" || name == "dict") return fields_of(name, arguments);
  if (name == "raise_exception") {
    const TemplateCall call(name, {.names = {"message"}, .num_needed = 1}, arguments, work_);
    throw TemplateFault("says: " + printable(call.given(0)->text(work_), 200));
  }
  return range_of(
      TemplateCall(name, {.names = {"start", "stop", "step"}, .num_needed = 1, .by_name = false}, arguments, work_));
}

}  // namespace weft
