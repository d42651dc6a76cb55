#include "weft/data/templates/template_arguments.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/data/templates/template_fault.h"

namespace weft {

TemplateCall::TemplateCall(std::string name, const TemplateParameters& parameters, const TemplateArguments& arguments,
                           TemplateWork& work)
    : name_(std::move(name)), parameters_(parameters.names), bound_(parameters_.size()), work_(&work) {
  if (arguments.places.size() > bound_.size()) {
    throw TemplateFault(fmt::format("gives {} {} values, where it takes at most {}", in_quotes(name_),
                                    arguments.places.size(), bound_.size()));
  }
  for (size_t i = 0; i < arguments.places.size(); ++i) bound_[i] = &arguments.places[i];
  for (const auto& [own, value] : arguments.names) {
    const auto at = std::find(parameters_.begin(), parameters_.end(), own);
    if (at == parameters_.end() || !parameters.by_name)
      throw TemplateFault(fmt::format("gives {} the unknown {}", in_quotes(name_), in_quotes(own)));
    const TemplateValue*& bound = bound_[static_cast<size_t>(at - parameters_.begin())];
    if (bound != nullptr) throw TemplateFault(fmt::format("gives {} its {} twice", in_quotes(name_), in_quotes(own)));
    bound = &value;
  }
  for (size_t i = 0; i < parameters.num_needed; ++i) {
    if (bound_[i] == nullptr)
      throw TemplateFault(fmt::format("uses {} without its {}", in_quotes(name_), in_quotes(parameters_[i])));
  }
}

const std::string& TemplateCall::text(size_t parameter) const {
  const auto* text = given(parameter) != nullptr ? given(parameter)->as<std::string>() : nullptr;
  if (text != nullptr) return *text;
  throw TemplateFault(fmt::format("gives {} {} for its {}, where a text is needed", in_quotes(name_),
                                  given(parameter) != nullptr ? given(parameter)->kind() : "nothing",
                                  in_quotes(parameters_[parameter])));
}

int64_t TemplateCall::integer(size_t parameter, int64_t otherwise) const {
  if (given(parameter) == nullptr) return otherwise;
  if (const auto* integer = given(parameter)->as<int64_t>()) return *integer;
  if (const auto* flag = given(parameter)->as<bool>()) return *flag ? 1 : 0;
  throw TemplateFault(fmt::format("gives {} {} for its {}, where a whole number is needed", in_quotes(name_),
                                  given(parameter)->kind(), in_quotes(parameters_[parameter])));
}

bool TemplateCall::flag(size_t parameter, bool otherwise) const {
  return given(parameter) != nullptr ? given(parameter)->is_true() : otherwise;
}

}  // namespace weft
