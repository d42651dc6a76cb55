#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/data/templates/template_value.h"

namespace weft {

/// What a function, a filter or a test is called with.
struct TemplateArguments {
  std::vector<TemplateValue> places;
  std::vector<std::pair<std::string, TemplateValue>> names;

  /// By name, else by place; null: not given.
  const TemplateValue* find(size_t place, std::string_view name) const;
};

/// Whether a value has a property: "defined", "string", "mapping", ... An unknown name is a TemplateFault.
bool passes_template_test(const std::string& name, const TemplateValue& value, const TemplateArguments& arguments);

/// Whether there is such a test, and such a filter.
bool is_template_test(const std::string& name);
bool is_template_filter(const std::string& name);

/// "trim", "tojson", ... An unknown name is a TemplateFault.
TemplateValue apply_template_filter(const std::string& name, const TemplateValue& value,
                                    const TemplateArguments& arguments);

/// Whether a value has a method of this name; then it can be called.
bool has_template_method(const TemplateValue& self, const std::string& name);
TemplateValue call_template_method(const TemplateValue& self, const std::string& name,
                                   const TemplateArguments& arguments);

/// Whether `item` is in a list, a mapping's keys or a text.
bool template_contains(const TemplateValue& whole, const TemplateValue& item);
/// Less, equal or greater: -1, 0, 1; a TemplateFault where Python has no order.
int template_order(const TemplateValue& a, const TemplateValue& b);
/// The items of a list, the characters of a text, the keys of a mapping.
std::vector<TemplateValue> template_items(const TemplateValue& value);
/// value[key], and value.name: undefined where there is none.
TemplateValue template_item(const TemplateValue& value, const TemplateValue& key);
TemplateValue template_attribute(const TemplateValue& value, const std::string& name);

/// Characters as Python counts and cuts them.
std::u32string characters_of(std::string_view text);
std::string text_of(std::u32string_view characters);
std::string stripped(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace weft
