#pragma once

#include <string>
#include <vector>

#include "weft/data/templates/template_arguments.h"
#include "weft/data/templates/template_value.h"
#include "weft/data/templates/template_work.h"

namespace weft {

/// Whether there is such a test, and such a filter.
bool is_template_test(const std::string& name);
bool is_template_filter(const std::string& name);

/// Whether a value has a property: "defined", "string", "mapping", ... An unknown name is a TemplateFault.
bool passes_template_test(const std::string& name, const TemplateValue& value, const TemplateArguments& arguments,
                          TemplateWork& work);

/// "trim", "tojson", ... An unknown name is a TemplateFault.
TemplateValue apply_template_filter(const std::string& name, const TemplateValue& value,
                                    const TemplateArguments& arguments, TemplateWork& work);

/// Whether a value has a method of this name; then it can be called.
bool has_template_method(const TemplateValue& self, const std::string& name);
TemplateValue call_template_method(const TemplateValue& self, const std::string& name,
                                   const TemplateArguments& arguments, TemplateWork& work);

/// What "upper", "lower", "capitalize" and "title" make of a text; letters beyond ASCII that this may
/// change are a TemplateFault.
std::string in_case(const std::string& text, const std::string& method);
/// With the first `most` of `from` replaced, or all where that is negative.
TemplateValue replaced(const std::string& text, const std::string& from, const std::string& to, int64_t most,
                       TemplateWork& work);
/// Keys and values as tuples.
TemplateValue items_of(const TemplateValue::Dict& dict, TemplateWork& work);

/// Whether `item` is in a list, a mapping's keys or a text.
bool template_contains(const TemplateValue& whole, const TemplateValue& item, TemplateWork& work);
/// Less, equal or greater: -1, 0, 1; a TemplateFault where Python has no order.
int template_order(const TemplateValue& a, const TemplateValue& b, TemplateWork& work);
/// The items of a list, the characters of a text, the keys of a mapping.
std::vector<TemplateValue> template_items(const TemplateValue& value, TemplateWork& work);
/// value[key], and value.name: undefined where there is none.
TemplateValue template_item(const TemplateValue& value, const TemplateValue& key, TemplateWork& work);
TemplateValue template_attribute(const TemplateValue& value, const std::string& name);

}  // namespace weft
