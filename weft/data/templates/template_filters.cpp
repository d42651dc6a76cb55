#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"
#include "weft/data/templates/template_numbers.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

using Arguments = TemplateArguments;
using Call = TemplateCall;
using Value = TemplateValue;

struct Filter {
  TemplateParameters parameters;
  std::function<Value(const Value&, const Call&)> apply;
};

Value list_of(std::vector<Value> items) {
  return TemplateWork::list(std::move(items));
}

Value length_of(const Value& value, const Call& call) {
  if (const auto* text = value.as<std::string>()) {
    call.work().bytes(text->size());
    return static_cast<int64_t>(characters_in(*text));
  }
  if (value.list() != nullptr) return static_cast<int64_t>(value.list()->items.size());
  if (value.dict() != nullptr && value.dict()->is_mapping()) return static_cast<int64_t>(value.dict()->items().size());
  if (value.is_undefined()) return int64_t{0};
  throw TemplateFault(fmt::format("asks for the length of {}", value.kind()));
}

Value to_json_filter(const Value& value, const Call& call) {
  // Indents beyond any file's.
  constexpr int64_t kMostIndent = 64;
  JsonStyle style{.is_ascii = call.flag(0), .sorts_keys = call.flag(3)};
  if (!call.is_none(1)) {
    style.indent = call.integer(1, 0);
    if (style.indent < 0 || style.indent > kMostIndent)
      throw TemplateFault(fmt::format("indents JSON by {}, where 0 to {} are known", style.indent, kMostIndent));
    style.item_separator = ",";
  }
  if (!call.is_none(2)) {
    const std::vector<Value> both = template_items(*call.given(2), call.work());
    if (both.size() != 2) throw TemplateFault("gives JSON other than two separators");
    style.item_separator = both[0].text(call.work());
    style.key_separator = both[1].text(call.work());
  }
  return to_json_text(value, style, call.work());
}

/// An attribute "a.b.0" of an item; `otherwise`, where given, stands for parts that are not there.
Value of_item(const Value& item, const Value& attribute, TemplateWork& work, const Value* otherwise = nullptr) {
  if (attribute.as<int64_t>() != nullptr) return template_item(item, attribute, work);
  const auto* path = attribute.as<std::string>();
  if (path == nullptr) throw TemplateFault(fmt::format("names an attribute by {}", attribute.kind()));
  work.bytes(path->size());
  Value value = item;
  for (size_t begin = 0; begin <= path->size();) {
    work.steps(1);
    const size_t end = std::min(path->find('.', begin), path->size());
    const std::string part = path->substr(begin, end - begin);
    const bool is_place = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (is_place) {
      value = template_item(value, python_integer(part, 10).value_or(0), work);
    } else {
      value = value.dict() != nullptr ? template_item(value, part, work) : template_attribute(value, part);
    }
    if (otherwise != nullptr && !otherwise->is_none() && value.is_undefined()) value = *otherwise;
    begin = end + 1;
  }
  return value;
}

/// What texts are compared by.
Value without_case(const Value& value, TemplateWork& work) {
  const auto* text = value.as<std::string>();
  return text != nullptr ? work.text(in_case(*text, "lower")) : value;
}

Value join_items(const Value& value, const Call& call) {
  const std::string separator = call.given(0) != nullptr ? call.given(0)->text(call.work()) : "";
  std::string joined;
  bool is_first = true;
  for (const Value& item : template_items(value, call.work())) {
    if (!std::exchange(is_first, false)) call.work().grow(joined, separator);
    (call.is_none(1) ? item : of_item(item, *call.given(1), call.work())).write_text(joined, call.work());
  }
  return joined;
}

Value indent_lines(const Value& value, const Call& call) {
  std::string blanks = "    ";
  if (call.given(0) != nullptr && call.given(0)->as<std::string>() != nullptr) {
    blanks = call.text(0);
  } else if (call.given(0) != nullptr) {
    const auto width = static_cast<size_t>(std::max<int64_t>(call.integer(0, 4), 0));
    TemplateWork::allow_text(width);
    call.work().bytes(width);
    blanks = std::string(width, ' ');
  }
  const bool indents_first = call.flag(1), indents_blank = call.flag(2);
  // Jinja adds a line end, for which an empty text has one line.
  const std::string text = value.text(call.work()) + "\n";
  std::string out;
  bool is_first = true;
  for (const std::string_view line : python_lines(text, /*keeps_ends=*/false)) {
    if (!is_first) call.work().grow(out, "\n");
    if (is_first ? indents_first : indents_blank || !line.empty()) call.work().grow(out, blanks);
    call.work().grow(out, line);
    is_first = false;
  }
  return out;
}

/// The filter or the test that the first argument names, with those after it.
Arguments behind(const Arguments& arguments, size_t count, TemplateWork& work) {
  work.steps(arguments.places.size());
  Arguments rest = arguments;
  rest.places.erase(rest.places.begin(), rest.places.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

const std::string& name_in(const Arguments& arguments, size_t place, std::string_view filter) {
  const auto* name = place < arguments.places.size() ? arguments.places[place].as<std::string>() : nullptr;
  if (name == nullptr) throw TemplateFault(fmt::format("uses '{}' without the name of what it applies", filter));
  return *name;
}

Value map_items(const Value& value, const Arguments& arguments, TemplateWork& work) {
  std::vector<Value> items;
  if (arguments.places.empty()) {
    const Call call("map", {.names = {"attribute", "default"}, .num_needed = 1}, arguments, work);
    for (const Value& item : template_items(value, work))
      work.grow(items, of_item(item, *call.given(0), work, call.given(1)));
    return list_of(std::move(items));
  }
  const std::string& filter = name_in(arguments, 0, "map");
  const Arguments rest = behind(arguments, 1, work);
  for (const Value& item : template_items(value, work)) {
    const TemplateWork::Level level(work);
    work.grow(items, apply_template_filter(filter, item, rest, work));
  }
  return list_of(std::move(items));
}

Value select(const std::string& filter, const Value& value, const Arguments& arguments, TemplateWork& work) {
  const bool by_attribute = filter.ends_with("attr"), rejects = filter.starts_with("reject");
  if (by_attribute && arguments.places.empty())
    throw TemplateFault(fmt::format("uses '{}' without the name of an attribute", filter));
  const size_t test = by_attribute ? 1 : 0;
  const bool has_test = test < arguments.places.size();
  if (!has_test && !arguments.names.empty())
    throw TemplateFault(fmt::format("gives '{}' the unknown {}", filter, in_quotes(arguments.names[0].first)));
  const Arguments rest = has_test ? behind(arguments, test + 1, work) : Arguments{};
  std::vector<Value> items;
  for (const Value& item : template_items(value, work)) {
    const Value judged = by_attribute ? of_item(item, arguments.places[0], work) : item;
    const bool passes =
        has_test ? passes_template_test(name_in(arguments, test, filter), judged, rest, work) : judged.is_true();
    if (passes != rejects) work.grow(items, item);
  }
  return list_of(std::move(items));
}

/// In the order of keys, which are made once.
Value in_order(std::vector<Value> items, const std::vector<Value>& keys, bool is_reversed, TemplateWork& work) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Python's reverse keeps equal items in their order.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int sign = template_order(keys[a], keys[b], work);
    return is_reversed ? sign > 0 : sign < 0;
  });
  std::vector<Value> sorted;
  for (const size_t i : order) work.grow(sorted, std::move(items[i]));
  return list_of(std::move(sorted));
}

Value sort_items(const Value& value, const Call& call) {
  std::vector<Value> items = template_items(value, call.work()), keys;
  for (const Value& item : items) {
    const Value own = call.is_none(2) ? item : of_item(item, *call.given(2), call.work());
    keys.push_back(call.flag(1) ? own : without_case(own, call.work()));
  }
  return in_order(std::move(items), keys, call.flag(0), call.work());
}

const Value::Dict* mapping_of(const Value& value, const Call& call) {
  if (value.dict() != nullptr && value.dict()->is_mapping()) return value.dict();
  if (!value.is_undefined() || call.name() != "items")
    throw TemplateFault(fmt::format("takes the items of {}", value.kind()));
  return nullptr;
}

Value dict_items(const Value& value, const Call& call) {
  const Value::Dict* dict = mapping_of(value, call);
  return dict != nullptr ? items_of(*dict, call.work()) : list_of({});
}

Value sorted_dict(const Value& value, const Call& call) {
  const std::string by = call.given(1) != nullptr ? call.text(1) : "key";
  if (by != "key" && by != "value") {
    throw TemplateFault(fmt::format("sorts a mapping by {}, where 'key' and 'value' are known", in_quotes(by)));
  }
  std::vector<Value> items = items_of(*mapping_of(value, call), call.work()).list()->items, keys;
  for (const Value& item : items) {
    const Value& own = item.list()->items[by == "key" ? 0 : 1];
    keys.push_back(call.flag(0) ? own : without_case(own, call.work()));
  }
  return in_order(std::move(items), keys, call.flag(2), call.work());
}

/// Equal for values that Python takes for one key. What Python cannot hash is a fault.
std::string key_of(const Value& value, TemplateWork& work) {
  if (const auto* text = value.as<std::string>()) {
    work.bytes(text->size());
    return "t" + *text;
  }
  if (value.as<int64_t>() != nullptr || value.as<bool>() != nullptr)
    return fmt::format("i{}", value.as<bool>() != nullptr ? int64_t{*value.as<bool>()} : *value.as<int64_t>());
  if (const auto* number = value.as<double>()) {
    const bool is_whole = std::trunc(*number) == *number && *number >= -0x1p63 && *number < 0x1p63;
    return is_whole ? fmt::format("i{}", static_cast<int64_t>(*number)) : fmt::format("f{}", *number);
  }
  if (value.is_none()) return "n";
  if (value.is_undefined()) return "u";
  if (const Value::List* list = value.list(); list != nullptr && list->is_tuple) {
    std::string key = "(";
    for (const Value& item : list->items) {
      const std::string own = key_of(item, work);
      work.grow(key, fmt::format("{}:", own.size()));
      work.grow(key, own);
    }
    return key;
  }
  throw TemplateFault(fmt::format("looks for equals of {}, which is not known", value.kind()));
}

Value unique_items(const Value& value, const Call& call) {
  std::vector<Value> items;
  std::set<std::string> seen;
  for (const Value& item : template_items(value, call.work())) {
    const Value own = call.is_none(1) ? item : of_item(item, *call.given(1), call.work());
    const Value compared = call.flag(0) ? own : without_case(own, call.work());
    if (seen.insert(key_of(compared, call.work())).second) call.work().grow(items, item);
  }
  return list_of(std::move(items));
}

[[noreturn]] void no_number(const Value& value, const Call& call) {
  throw TemplateFault(fmt::format("makes a number ('{}') of {}", call.name(), value.kind()));
}

Value to_integer(const Value& value, const Call& call) {
  if (value.is_undefined()) no_number(value, call);
  if (value.as<double>() != nullptr && !std::isnan(value.number())) return whole_part(value.number());
  if (value.as<double>() == nullptr && value.is_number()) return template_arithmetic("+", value, int64_t{0});
  if (const auto* text = value.as<std::string>()) {
    call.work().bytes(text->size());
    if (const auto number = python_integer(*text, call.integer(1, 10))) return *number;
    const auto number = python_float_of(*text);
    if (number && std::isfinite(*number)) return whole_part(*number);
  }
  return call.given(0) != nullptr ? *call.given(0) : Value(int64_t{0});
}

Value to_float(const Value& value, const Call& call) {
  if (value.is_undefined()) no_number(value, call);
  if (value.is_number()) return value.number();
  if (const auto* text = value.as<std::string>()) {
    call.work().bytes(text->size());
    if (const auto number = python_float_of(*text)) return *number;
  }
  return call.given(0) != nullptr ? *call.given(0) : Value(0.0);
}

Value first_or_last(const Value& value, const Call& call) {
  const bool is_first = call.name() == "first";
  const Value::List* list = value.list();
  const std::vector<Value> items = list != nullptr ? std::vector<Value>() : template_items(value, call.work());
  const std::vector<Value>& all = list != nullptr ? list->items : items;
  if (all.empty()) return Value::undefined(is_first ? "the first of nothing" : "the last of nothing");
  return is_first ? all.front() : all.back();
}

Value reverse_items(const Value& value, const Call& call) {
  std::vector<Value> items = template_items(value, call.work());
  std::reverse(items.begin(), items.end());
  if (value.as<std::string>() == nullptr) return list_of(std::move(items));
  std::string text;
  for (const Value& item : items) item.write_text(text, call.work());
  return text;
}

Value trim_text(const Value& value, const Call& call) {
  const std::string text = value.text(call.work());
  std::optional<std::string_view> characters;
  if (!call.is_none(0)) characters = call.text(0);
  return call.work().text(stripped(text, characters, true, true));
}

/// Words begin behind blanks, dashes and opening brackets.
Value title_words(const Value& value, const Call& call) {
  // What "title" refuses is refused here, too.
  std::string text = in_case(in_case(value.text(call.work()), "title"), "lower");
  call.work().bytes(4 * text.size());
  bool begins_word = true;
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = utf8_at(text, i);
    if (begins_word && next.code < 0x80) text[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[i])));
    begins_word = is_python_space(next.code) ||
                  (next.code < 0x80 && std::string_view("-({[<").find(text[i]) != std::string_view::npos);
    i += next.length;
  }
  return text;
}

Value replace_parts(const Value& value, const Call& call) {
  TemplateWork& work = call.work();
  return replaced(value.text(work), call.given(0)->text(work), call.given(1)->text(work),
                  call.is_none(2) ? -1 : call.integer(2, -1), work);
}

Value default_value(const Value& value, const Call& call) {
  const bool is_missing = value.is_undefined() || (call.flag(1) && !value.is_true());
  return !is_missing ? value : call.given(0) != nullptr ? *call.given(0) : Value("");
}

std::map<std::string, Filter> make_filters() {
  const auto cased = [](const char* method) {
    return Filter{{}, [method](const Value& v, const Call& c) {
                    const std::string text = v.text(c.work());
                    c.work().bytes(2 * text.size());
                    return Value(in_case(text, method));
                  }};
  };
  const Filter length{{}, length_of}, otherwise{{.names = {"default_value", "boolean"}}, default_value},
      end{{}, first_or_last};
  return {
      {"tojson", {{.names = {"ensure_ascii", "indent", "separators", "sort_keys"}}, to_json_filter}},
      {"trim", {{.names = {"chars"}}, trim_text}},
      {"upper", cased("upper")},
      {"lower", cased("lower")},
      {"title", {{}, title_words}},
      {"capitalize", cased("capitalize")},
      {"replace", {{.names = {"old", "new", "count"}, .num_needed = 2}, replace_parts}},
      {"length", length},
      {"count", length},
      {"default", otherwise},
      {"d", otherwise},
      {"join", {{.names = {"d", "attribute"}}, join_items}},
      {"indent", {{.names = {"width", "first", "blank"}}, indent_lines}},
      {"list", {{}, [](const Value& v, const Call& c) { return list_of(template_items(v, c.work())); }}},
      {"string", {{}, [](const Value& v, const Call& c) { return Value(v.text(c.work())); }}},
      {"safe", {{}, [](const Value& v, const Call&) { return v; }}},
      {"first", end},
      {"last", end},
      {"reverse", {{}, reverse_items}},
      {"unique", {{.names = {"case_sensitive", "attribute"}}, unique_items}},
      {"sort", {{.names = {"reverse", "case_sensitive", "attribute"}}, sort_items}},
      {"items", {{}, dict_items}},
      {"dictsort", {{.names = {"case_sensitive", "by", "reverse"}}, sorted_dict}},
      {"int", {{.names = {"default", "base"}}, to_integer}},
      {"float", {{.names = {"default"}}, to_float}},
      {"abs", {{}, [](const Value& v, const Call&) { return template_absolute(v); }}},
  };
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> all = make_filters();
  return all;
}

/// Those that hand arguments on.
bool is_select(const std::string& name) {
  return name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr";
}

}  // namespace

TemplateValue apply_template_filter(const std::string& name, const Value& value, const Arguments& arguments,
                                    TemplateWork& work) {
  if (name == "map") return map_items(value, arguments, work);
  if (is_select(name)) return select(name, value, arguments, work);
  const auto it = filters().find(name);
  if (it == filters().end()) throw TemplateFault(fmt::format("has the unknown filter {}", in_quotes(name)));
  return it->second.apply(value, Call(name, it->second.parameters, arguments, work));
}

bool is_template_filter(const std::string& name) {
  return name == "map" || is_select(name) || filters().contains(name);
}

}  // namespace weft
