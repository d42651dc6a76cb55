#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"

namespace weft {
namespace {

using Arguments = TemplateArguments;
using Value = TemplateValue;

int64_t length_of(const Value& value) {
  if (const auto* text = value.as<std::string>()) return static_cast<int64_t>(characters_of(*text).size());
  if (value.list() != nullptr) return static_cast<int64_t>(value.list()->items.size());
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->items.size());
  if (value.is_undefined()) return 0;
  throw TemplateFault(fmt::format("asks for the length of {}", value.kind()));
}

Value list_of(std::vector<Value> items) {
  return Value::List{.items = std::move(items)};
}

std::string argument_text(const Arguments& arguments, size_t place, std::string_view name, std::string fallback) {
  const Value* given = arguments.find(place, name);
  return given != nullptr && !given->is_none() ? given->text() : fallback;
}

bool argument_flag(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* given = arguments.find(place, name);
  return given != nullptr && given->is_true();
}

Value to_json_filter(const Value& value, const Arguments& arguments) {
  JsonStyle style{.is_ascii = argument_flag(arguments, 0, "ensure_ascii"),
                  .sorts_keys = argument_flag(arguments, 3, "sort_keys")};
  if (const Value* indent = arguments.find(1, "indent"); indent != nullptr && !indent->is_none()) {
    const auto* count = indent->as<int64_t>();
    if (count == nullptr || *count < 0 || *count > 64) throw TemplateFault("indents JSON by what is no small number");
    style.indent = *count;
    style.item_separator = ",";
  }
  if (const Value* separators = arguments.find(2, "separators"); separators != nullptr && !separators->is_none()) {
    const std::vector<Value> both = template_items(*separators);
    if (both.size() != 2) throw TemplateFault("gives JSON other than two separators");
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  }
  return to_json_text(value, style);
}

Value join(const Value& value, const Arguments& arguments) {
  const std::string separator = argument_text(arguments, 0, "d", "");
  const Value* attribute = arguments.find(1, "attribute");
  std::string joined;
  size_t count = 0;
  for (const Value& item : template_items(value)) {
    if (count++ > 0) joined += separator;
    joined += (attribute != nullptr ? template_attribute(item, attribute->text()) : item).text();
  }
  return joined;
}

Value indent(const Value& value, const Arguments& arguments) {
  const Value* width = arguments.find(0, "width");
  const std::string blanks = width == nullptr ? "    "
                             : width->as<std::string>() != nullptr
                                 ? *width->as<std::string>()
                                 : std::string(static_cast<size_t>(std::clamp(width->number(), 0.0, 64.0)), ' ');
  const bool indents_first = argument_flag(arguments, 1, "first"), indents_blank = argument_flag(arguments, 2, "blank");
  const std::string text = value.text();
  std::string out;
  for (size_t begin = 0, line = 0; begin <= text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (line > 0) out += '\n';
    const bool is_indented = line == 0 ? indents_first : indents_blank || end > begin;
    if (is_indented) out += blanks;
    out.append(text, begin, end - begin);
    begin = end + 1;
  }
  return out;
}

/// What a filter over items does with each: an attribute of it, or the value of a test or filter named first.
Value of_item(const Value& item, const std::string& attribute) {
  Value value = item;
  for (size_t begin = 0; begin <= attribute.size();) {
    const size_t end = std::min(attribute.find('.', begin), attribute.size());
    const std::string part = attribute.substr(begin, end - begin);
    value = value.dict() != nullptr ? template_item(value, part) : template_attribute(value, part);
    begin = end + 1;
  }
  return value;
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.places.erase(rest.places.begin(),
                    rest.places.begin() + static_cast<std::ptrdiff_t>(std::min(count, rest.places.size())));
  return rest;
}

Value map_items(const Value& value, const Arguments& arguments) {
  std::vector<Value> items;
  const Value* attribute = arguments.find(static_cast<size_t>(-1), "attribute");
  if (attribute == nullptr && arguments.places.empty()) throw TemplateFault("uses 'map' without an argument");
  for (const Value& item : template_items(value)) {
    items.push_back(attribute != nullptr
                        ? of_item(item, attribute->text())
                        : apply_template_filter(arguments.places[0].text(), item, without_first(arguments, 1)));
  }
  return list_of(std::move(items));
}

Value select(const std::string& filter, const Value& value, const Arguments& arguments) {
  const bool by_attribute = filter.ends_with("attr"), rejects = filter.starts_with("reject");
  if (by_attribute && arguments.places.empty()) throw TemplateFault(fmt::format("uses '{}' without a name", filter));
  const size_t test = by_attribute ? 1 : 0;
  std::vector<Value> items;
  for (const Value& item : template_items(value)) {
    const Value judged = by_attribute ? of_item(item, arguments.places[0].text()) : item;
    const bool passes = test < arguments.places.size() ? passes_template_test(arguments.places[test].text(), judged,
                                                                              without_first(arguments, test + 1))
                                                       : judged.is_true();
    if (passes != rejects) items.push_back(item);
  }
  return list_of(std::move(items));
}

/// What texts are sorted by: letters beyond ASCII in their own case.
Value without_case(const Value& value) {
  const auto* text = value.as<std::string>();
  if (text == nullptr) return value;
  std::string lower = *text;
  for (char& c : lower) c = static_cast<unsigned char>(c) < 0x80 ? static_cast<char>(std::tolower(c)) : c;
  return lower;
}

Value sorted(const Value& value, const Arguments& arguments) {
  std::vector<Value> items = template_items(value);
  const Value* attribute = arguments.find(2, "attribute");
  const bool sees_case = argument_flag(arguments, 1, "case_sensitive");
  const auto key = [&](const Value& item) {
    Value own = attribute != nullptr ? of_item(item, attribute->text()) : item;
    return sees_case ? own : without_case(own);
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Value& a, const Value& b) { return template_order(key(a), key(b)) < 0; });
  // Python's reverse keeps equal items in their order.
  if (argument_flag(arguments, 0, "reverse")) {
    std::stable_sort(items.begin(), items.end(),
                     [&](const Value& a, const Value& b) { return template_order(key(a), key(b)) > 0; });
  }
  return list_of(std::move(items));
}

Value dict_items(const Value& value, bool is_sorted) {
  if (value.is_undefined()) return list_of({});
  if (value.dict() == nullptr || value.dict()->is_namespace)
    throw TemplateFault(fmt::format("takes the items of {}", value.kind()));
  Value items = call_template_method(value, "items", {});
  if (!is_sorted) return items;
  std::vector<Value> all = items.list()->items;
  std::stable_sort(all.begin(), all.end(), [](const Value& a, const Value& b) {
    return template_order(without_case(a.list()->items[0]), without_case(b.list()->items[0])) < 0;
  });
  return list_of(std::move(all));
}

Value unique(const Value& value) {
  std::vector<Value> items;
  for (const Value& item : template_items(value)) {
    const auto is_it = [&](const Value& other) { return other.equals(item); };
    if (std::none_of(items.begin(), items.end(), is_it)) items.push_back(item);
  }
  return list_of(std::move(items));
}

Value as_integer(const Value& value, const Arguments& arguments) {
  if (value.as<int64_t>() != nullptr) return value;
  if (value.is_number() && std::fabs(value.number()) < 9e18) return static_cast<int64_t>(value.number());
  const Value* fallback = arguments.find(0, "default");
  const Value otherwise = fallback != nullptr ? *fallback : Value(int64_t{0});
  const auto* text = value.as<std::string>();
  if (text == nullptr) return otherwise;
  const std::string digits = stripped(*text, "", true, true);
  try {
    size_t read = 0;
    const double number = std::stod(digits, &read);
    return read == digits.size() && std::fabs(number) < 9e15 ? Value(static_cast<int64_t>(number)) : otherwise;
  } catch (const std::exception&) {
    return otherwise;
  }
}

Value ends(const Value& value, bool is_first) {
  const std::vector<Value> items = template_items(value);
  if (items.empty()) return Value::undefined(is_first ? "the first of nothing" : "the last of nothing");
  return is_first ? items.front() : items.back();
}

Value reversed(const Value& value) {
  std::vector<Value> items = template_items(value);
  std::reverse(items.begin(), items.end());
  if (value.as<std::string>() == nullptr) return list_of(std::move(items));
  std::string text;
  for (const Value& item : items) text += item.text();
  return text;
}

using Filter = std::function<Value(const Value&, const Arguments&)>;

const std::map<std::string, Filter>& filters() {
  const auto method = [](const char* name) {
    return [name](const Value& v, const Arguments& a) { return call_template_method(Value(v.text()), name, a); };
  };
  const Filter fallback = [](const Value& v, const Arguments& a) {
    const Value* given = a.find(0, "default_value");
    const bool is_missing = v.is_undefined() || (argument_flag(a, 1, "boolean") && !v.is_true());
    return !is_missing ? v : given != nullptr ? *given : Value("");
  };
  const Filter length = [](const Value& v, const Arguments&) { return Value(length_of(v)); };
  static const std::map<std::string, Filter> all = {
      {"tojson", to_json_filter},
      {"trim", method("strip")},
      {"upper", method("upper")},
      {"lower", method("lower")},
      {"title", method("title")},
      {"capitalize", method("capitalize")},
      {"replace", method("replace")},
      {"length", length},
      {"count", length},
      {"default", fallback},
      {"d", fallback},
      {"join", join},
      {"indent", indent},
      {"list", [](const Value& v, const Arguments&) { return list_of(template_items(v)); }},
      {"string", [](const Value& v, const Arguments&) { return Value(v.text()); }},
      {"safe", [](const Value& v, const Arguments&) { return v; }},
      {"first", [](const Value& v, const Arguments&) { return ends(v, true); }},
      {"last", [](const Value& v, const Arguments&) { return ends(v, false); }},
      {"reverse", [](const Value& v, const Arguments&) { return reversed(v); }},
      {"unique", [](const Value& v, const Arguments&) { return unique(v); }},
      {"sort", sorted},
      {"items", [](const Value& v, const Arguments&) { return dict_items(v, false); }},
      {"dictsort", [](const Value& v, const Arguments&) { return dict_items(v, true); }},
      {"map", map_items},
      {"int", as_integer},
      {"float",
       [](const Value& v, const Arguments&) {
         return v.is_number() ? Value(v.number()) : Value(std::strtod(v.text().c_str(), nullptr));
       }},
      {"abs",
       [](const Value& v, const Arguments&) {
         return v.as<int64_t>() != nullptr ? Value(*v.as<int64_t>() < 0 ? -*v.as<int64_t>() : *v.as<int64_t>())
                                           : Value(std::fabs(v.number()));
       }},
  };
  return all;
}

}  // namespace

TemplateValue apply_template_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return select(name, value, arguments);
  const auto it = filters().find(name);
  if (it == filters().end()) throw TemplateFault(fmt::format("has the unknown filter {}", in_quotes(name)));
  return it->second(value, arguments);
}

bool is_template_filter(const std::string& name) {
  return name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr" ||
         filters().contains(name);
}

bool is_template_test(const std::string& name) {
  static constexpr std::array<std::string_view, 27> kTests = {
      "defined", "undefined", "none",     "string",   "boolean", "true", "false",       "number",  "integer",
      "float",   "mapping",   "sequence", "iterable", "odd",     "even", "divisibleby", "equalto", "eq",
      "sameas",  "ne",        "lt",       "lessthan", "gt",      "le",   "ge",          "in",      "callable"};
  return name == "greaterthan" || std::find(kTests.begin(), kTests.end(), name) != kTests.end();
}

bool passes_template_test(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto other = [&]() -> const Value& {
    if (arguments.places.empty()) throw TemplateFault(fmt::format("has the test '{}' without a value", name));
    return arguments.places[0];
  };
  const auto integer = [&](const Value& v) {
    if (v.as<int64_t>() == nullptr) throw TemplateFault(fmt::format("has the test '{}' of {}", name, v.kind()));
    return *v.as<int64_t>();
  };
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.as<std::string>() != nullptr;
  if (name == "boolean") return value.as<bool>() != nullptr;
  if (name == "true") return value.as<bool>() != nullptr && *value.as<bool>();
  if (name == "false") return value.as<bool>() != nullptr && !*value.as<bool>();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.as<int64_t>() != nullptr;
  if (name == "float") return value.as<double>() != nullptr;
  if (name == "mapping") return value.dict() != nullptr && !value.dict()->is_namespace;
  if (name == "sequence" || name == "iterable") {
    return value.as<std::string>() != nullptr || value.list() != nullptr || value.is_undefined() ||
           (value.dict() != nullptr && !value.dict()->is_namespace);
  }
  if (name == "callable") return value.as<Value::Function>() != nullptr || value.as<Value::Macro>() != nullptr;
  if (name == "odd") return integer(value) % 2 != 0;
  if (name == "even") return integer(value) % 2 == 0;
  if (name == "divisibleby") {
    if (integer(other()) == 0) throw TemplateFault("divides by zero");
    return integer(other()) == -1 || integer(value) % integer(other()) == 0;
  }
  if (name == "equalto" || name == "eq" || name == "sameas") return value.equals(other());
  if (name == "ne") return !value.equals(other());
  if (name == "lt" || name == "lessthan") return template_order(value, other()) < 0;
  if (name == "gt" || name == "greaterthan") return template_order(value, other()) > 0;
  if (name == "le") return template_order(value, other()) <= 0;
  if (name == "ge") return template_order(value, other()) >= 0;
  if (name == "in") return template_contains(other(), value);
  throw TemplateFault(fmt::format("has the unknown test {}", in_quotes(name)));
}

}  // namespace weft
