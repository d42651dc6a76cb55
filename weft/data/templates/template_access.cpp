#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"

namespace weft {
namespace {

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

}  // namespace

const TemplateValue* TemplateArguments::find(size_t place, std::string_view name) const {
  for (const auto& [own, value] : names) {
    if (own == name) return &value;
  }
  return place < places.size() ? &places[place] : nullptr;
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = utf8_at(text, i);
    characters += next.code;
    i += next.length;
  }
  return characters;
}

std::string text_of(std::u32string_view characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return text;
}

std::string stripped(std::string_view text, std::string_view characters, bool left, bool right) {
  const std::u32string given = characters_of(characters);
  const auto goes = [&](char32_t c) {
    return given.empty() ? is_python_space(c) : given.find(c) != std::u32string::npos;
  };
  while (left && !text.empty()) {
    const Utf8Character first = utf8_at(text, 0);
    if (!goes(first.code)) break;
    text.remove_prefix(first.length);
  }
  while (right && !text.empty()) {
    const size_t last = utf8_before(text, text.size());
    if (!goes(utf8_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

bool template_contains(const TemplateValue& whole, const TemplateValue& item) {
  if (const auto* text = whole.as<std::string>()) {
    const auto* part = item.as<std::string>();
    if (part == nullptr) throw TemplateFault(fmt::format("looks for {} in a text", item.kind()));
    return text->find(*part) != std::string::npos;
  }
  if (const TemplateValue::List* list = whole.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const TemplateValue& other) { return other.equals(item); });
  }
  if (const TemplateValue::Dict* dict = whole.dict()) {
    const auto* key = item.as<std::string>();
    return key != nullptr && dict->find(*key) != nullptr;
  }
  if (whole.is_undefined()) return false;
  throw TemplateFault(fmt::format("looks for something in {}", whole.kind()));
}

int template_order(const TemplateValue& a, const TemplateValue& b) {
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  const auto *left = a.as<std::string>(), *right = b.as<std::string>();
  if (left == nullptr || right == nullptr) throw TemplateFault(fmt::format("orders {} and {}", a.kind(), b.kind()));
  return *left < *right ? -1 : *left > *right ? 1 : 0;
}

std::vector<TemplateValue> template_items(const TemplateValue& value) {
  std::vector<TemplateValue> items;
  if (const TemplateValue::List* list = value.list()) return list->items;
  if (const TemplateValue::Dict* dict = value.dict(); dict != nullptr && !dict->is_namespace) {
    for (const auto& [key, ignored] : dict->items) items.emplace_back(key);
    return items;
  }
  if (const auto* text = value.as<std::string>()) {
    for (const char32_t c : characters_of(*text)) items.emplace_back(text_of(std::u32string_view(&c, 1)));
    return items;
  }
  if (value.is_undefined()) return items;
  throw TemplateFault(fmt::format("goes through {}", value.kind()));
}

TemplateValue template_item(const TemplateValue& value, const TemplateValue& key) {
  if (value.is_undefined()) throw TemplateFault(fmt::format("takes a part of {}", value.kind()));
  if (const TemplateValue::Dict* dict = value.dict()) {
    const auto* name = key.as<std::string>();
    const TemplateValue* found = name != nullptr ? dict->find(*name) : nullptr;
    if (found != nullptr) return *found;
    return TemplateValue::undefined(name != nullptr ? printable(*name) : "an item");
  }
  const auto* place = key.as<int64_t>();
  if (place == nullptr) {
    const auto* name = key.as<std::string>();
    return name != nullptr && has_template_method(value, *name) ? template_attribute(value, *name)
                                                                : TemplateValue::undefined("an item");
  }
  const auto at = [&](size_t size) { return *place < 0 ? *place + static_cast<int64_t>(size) : *place; };
  if (const TemplateValue::List* list = value.list()) {
    const int64_t i = at(list->items.size());
    const bool is_inside = i >= 0 && i < static_cast<int64_t>(list->items.size());
    return is_inside ? list->items[static_cast<size_t>(i)] : TemplateValue::undefined("an item beyond the list");
  }
  if (const auto* text = value.as<std::string>()) {
    const std::u32string characters = characters_of(*text);
    const int64_t i = at(characters.size());
    const bool is_inside = i >= 0 && i < static_cast<int64_t>(characters.size());
    return is_inside ? TemplateValue(text_of(std::u32string_view(characters).substr(static_cast<size_t>(i), 1)))
                     : TemplateValue::undefined("a character beyond the text");
  }
  return TemplateValue::undefined("an item");
}

TemplateValue template_attribute(const TemplateValue& value, const std::string& name) {
  if (value.is_undefined()) throw TemplateFault(fmt::format("takes '{}' of {}", printable(name), value.kind()));
  if (has_template_method(value, name))
    return TemplateValue::Function{name, std::make_shared<const TemplateValue>(value)};
  if (const TemplateValue::Dict* dict = value.dict()) {
    if (const TemplateValue* found = dict->find(name)) return *found;
  }
  return TemplateValue::undefined(printable(name));
}

}  // namespace weft
