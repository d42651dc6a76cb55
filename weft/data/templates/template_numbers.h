#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weft/data/templates/template_value.h"

namespace weft {

/// +, -, *, /, //, % and ** of two numbers, as Python has them; a TemplateFault where an integer is beyond 64 bits.
TemplateValue template_arithmetic(const std::string& mark, const TemplateValue& a, const TemplateValue& b);
TemplateValue template_negative(const TemplateValue& value);
TemplateValue template_absolute(const TemplateValue& value);

/// As Python's int and float read a text; nothing where they raise an error.
std::optional<int64_t> python_integer(std::string_view text, int64_t base);
std::optional<double> python_float_of(std::string_view text);
/// Towards zero; a TemplateFault where it is beyond 64 bits.
int64_t whole_part(double value);

}  // namespace weft
