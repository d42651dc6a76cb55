#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/templates/template_value.h"

namespace weft {

/// An expression of a template.
struct TemplateExpression {
  enum class Kind : uint8_t {
    kLiteral,
    kName,
    kList,
    kTuple,
    kDict,       ///< keys and values in turn
    kAttribute,  ///< parts[0].text
    kItem,       ///< parts[0][parts[1]]
    kSlice,      ///< parts[0][parts[1]:parts[2]:parts[3]], null where left out
    kCall,       ///< parts[0](arguments)
    kFilter,     ///< parts[0] | text(arguments)
    kTest,       ///< parts[0] is text(arguments)
    kNot,
    kNegative,
    kAnd,      ///< of all parts
    kOr,       ///< of all parts
    kCompare,  ///< parts[0] operators[0] parts[1] operators[1] ...
    kBinary,   ///< the same, from the left; all operators are "~", or none is
    kChoice    ///< parts[0] if parts[1] else parts[2], null where left out
  };
  Kind kind = Kind::kLiteral;
  int line = 0;
  int depth = 1;  ///< of the parts inside each other
  std::string text;
  TemplateValue value;
  std::vector<std::unique_ptr<TemplateExpression>> parts;
  std::vector<std::string> operators;
  struct Argument {
    std::string name;  ///< empty: by place
    std::unique_ptr<TemplateExpression> value;
  };
  std::vector<Argument> arguments;
};

using TemplateExpressionPtr = std::unique_ptr<TemplateExpression>;

/// A statement, or text, of a template.
struct TemplateStatement {
  enum class Kind : uint8_t {
    kText,
    kOutput,
    kIf,  ///< conditions[i] for bodies[i]; one body more is the else
    kFor,
    kSet,  ///< names or a namespace's field from conditions[0], or from bodies[0] rendered
    kMacro,
    kGeneration,
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  int line = 0;
  std::string text;                ///< kText; the namespace of kSet; the name of kMacro
  std::vector<std::string> names;  ///< that kFor and kSet give values to; the parameters of kMacro; a field of kSet
  std::vector<TemplateExpressionPtr> conditions;  ///< kFor: what is gone through and which items; defaults of kMacro
  std::vector<std::vector<TemplateStatement>> bodies;
};

using TemplateBody = std::vector<TemplateStatement>;

struct TemplateMacro {
  const TemplateStatement* statement = nullptr;
};

/// Throws a TemplateFault that names what is not known.
TemplateBody parse_template(std::string_view source);

}  // namespace weft
