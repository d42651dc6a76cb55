#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"
#include "weft/data/templates/template_functions.h"
#include "weft/data/templates/template_text.h"

namespace weft {
namespace {

TemplateValue character_at(const std::string& text, int64_t place, TemplateWork& work) {
  work.bytes(text.size());
  const auto size = static_cast<int64_t>(characters_in(text));
  const int64_t i = place < 0 ? place + size : place;
  if (i < 0 || i >= size) return TemplateValue::undefined("a character beyond the text");
  const size_t offset = offset_of_character(text, static_cast<size_t>(i));
  return text.substr(offset, utf8_at(text, offset).length);
}

}  // namespace

bool template_contains(const TemplateValue& whole, const TemplateValue& item, TemplateWork& work) {
  if (const auto* text = whole.as<std::string>()) {
    const auto* part = item.as<std::string>();
    if (part == nullptr) throw TemplateFault(fmt::format("looks for {} in a text", item.kind()));
    work.bytes(text->size() + part->size());
    return found_at(*text, *part) != std::string::npos;
  }
  if (const TemplateValue::List* list = whole.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const TemplateValue& other) { return other.equals(item, work); });
  }
  if (const TemplateValue::Dict* dict = whole.dict(); dict != nullptr && dict->is_mapping()) {
    const auto* key = item.as<std::string>();
    if (key != nullptr) work.bytes(key->size());
    return key != nullptr && dict->find(*key) != nullptr;
  }
  if (whole.is_undefined()) return false;
  throw TemplateFault(fmt::format("looks for something in {}", whole.kind()));
}

int template_order(const TemplateValue& a, const TemplateValue& b, TemplateWork& work) {
  if (const auto* left = a.as<int64_t>(), *right = b.as<int64_t>(); left != nullptr && right != nullptr)
    return *left < *right ? -1 : *left > *right ? 1 : 0;
  if (a.is_number() && b.is_number()) return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
  const auto *left = a.as<std::string>(), *right = b.as<std::string>();
  if (left == nullptr || right == nullptr) throw TemplateFault(fmt::format("orders {} and {}", a.kind(), b.kind()));
  work.bytes(std::min(left->size(), right->size()));
  // UTF-8 sorts as its characters do.
  const int order = left->compare(*right);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

std::vector<TemplateValue> template_items(const TemplateValue& value, TemplateWork& work) {
  std::vector<TemplateValue> items;
  if (const TemplateValue::List* list = value.list()) {
    work.steps(list->items.size());
    return list->items;
  }
  if (const TemplateValue::Dict* dict = value.dict(); dict != nullptr && dict->is_mapping()) {
    for (const auto& [key, ignored] : dict->items()) work.grow(items, work.text(key));
    return items;
  }
  if (const auto* text = value.as<std::string>()) {
    for (size_t i = 0; i < text->size();) {
      const size_t length = utf8_at(*text, i).length;
      work.grow(items, work.text(std::string_view(*text).substr(i, length)));
      i += length;
    }
    return items;
  }
  if (value.is_undefined()) return items;
  throw TemplateFault(fmt::format("goes through {}", value.kind()));
}

TemplateValue template_item(const TemplateValue& value, const TemplateValue& key, TemplateWork& work) {
  if (value.is_undefined()) throw TemplateFault(fmt::format("takes a part of {}", value.kind()));
  const auto* name = key.as<std::string>();
  if (name != nullptr) work.bytes(name->size());
  if (const TemplateValue::Dict* dict = value.dict(); dict != nullptr && name != nullptr) {
    if (const TemplateValue* found = dict->find(*name)) return *found;
  }
  // Python's subscripts take True for 1, and Jinja's a name for an attribute.
  if (name != nullptr) {
    return has_template_method(value, *name) ? template_attribute(value, *name)
                                             : TemplateValue::undefined(printable(*name));
  }
  const auto* flag = key.as<bool>();
  const auto* place = key.as<int64_t>();
  if (place == nullptr && flag == nullptr) return TemplateValue::undefined("an item");
  const int64_t at = place != nullptr ? *place : *flag ? 1 : 0;
  if (const TemplateValue::List* list = value.list()) {
    const auto size = static_cast<int64_t>(list->items.size());
    const int64_t i = at < 0 ? at + size : at;
    return i >= 0 && i < size ? list->items[static_cast<size_t>(i)]
                              : TemplateValue::undefined("an item beyond the list");
  }
  if (const auto* text = value.as<std::string>()) return character_at(*text, at, work);
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
