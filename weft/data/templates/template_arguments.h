#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/data/templates/template_value.h"
#include "weft/data/templates/template_work.h"

namespace weft {

/// What a function, a filter or a test is called with.
struct TemplateArguments {
  std::vector<TemplateValue> places;
  std::vector<std::pair<std::string, TemplateValue>> names;
};

/// What it takes.
struct TemplateParameters {
  std::vector<std::string> names;
  size_t num_needed = 0;  ///< the first ones
  bool by_name = true;    ///< whether a call may name them
};

/// One call with its arguments bound to parameters. An argument that no parameter takes is a TemplateFault.
class TemplateCall {
 public:
  TemplateCall(std::string name, const TemplateParameters& parameters, const TemplateArguments& arguments,
               TemplateWork& work);

  /// Null: left out.
  const TemplateValue* given(size_t parameter) const { return bound_[parameter]; }
  bool is_none(size_t parameter) const { return given(parameter) == nullptr || given(parameter)->is_none(); }
  /// A fault where it is something else.
  const std::string& text(size_t parameter) const;
  int64_t integer(size_t parameter, int64_t otherwise) const;
  bool flag(size_t parameter, bool otherwise = false) const;

  const std::string& name() const { return name_; }
  TemplateWork& work() const { return *work_; }

 private:
  std::string name_;
  std::vector<std::string> parameters_;
  std::vector<const TemplateValue*> bound_;
  TemplateWork* work_;
};

}  // namespace weft
