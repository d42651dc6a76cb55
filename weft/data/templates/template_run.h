#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/data/templates/template_functions.h"
#include "weft/data/templates/template_syntax.h"
#include "weft/data/templates/template_work.h"

namespace weft {

/// Bytes [begin, end) of a rendered text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;

  bool operator==(const TextRange&) const = default;
};

/// One rendering of a template. Throws a TemplateFault.
class TemplateRun {
 public:
  using Scope = std::map<std::string, TemplateValue>;

  /// `watched` is a list whose items' own output is noted: the messages.
  TemplateRun(const TemplateBody& body, Scope variables, const TemplateValue& watched);

  std::string run();
  /// Of the text: what stood between {% generation %} and its end.
  const std::vector<TextRange>& generations() const { return generations_; }
  /// What loops wrote for each watched item; an empty range where nothing.
  const std::vector<TextRange>& watched_ranges() const { return watched_ranges_; }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  Flow run_body(const TemplateBody& body);
  Flow run_statement(const TemplateStatement& statement);
  Flow run_if(const TemplateStatement& statement);
  void run_for(const TemplateStatement& statement);
  void run_set(const TemplateStatement& statement);
  void run_generation(const TemplateStatement& statement);
  std::string captured(const TemplateBody& body);
  void assign(const std::vector<std::string>& names, const TemplateValue& value);

  TemplateValue evaluate(const TemplateExpression& expression);
  TemplateValue evaluate_here(const TemplateExpression& expression);
  TemplateValue evaluate_list(const TemplateExpression& expression);
  TemplateValue evaluate_dict(const TemplateExpression& expression);
  TemplateValue evaluate_logic(const TemplateExpression& expression);
  TemplateValue evaluate_slice(const TemplateExpression& expression);
  TemplateValue evaluate_compare(const TemplateExpression& expression);
  TemplateValue evaluate_binary(const TemplateExpression& expression);
  TemplateValue evaluate_call(const TemplateExpression& expression);
  TemplateValue call_global(const std::string& name, const TemplateArguments& arguments);
  TemplateValue call_macro(const TemplateStatement& macro, const TemplateArguments& arguments);
  TemplateArguments arguments_of(const TemplateExpression& expression);
  TemplateValue look_up(const std::string& name);

  const TemplateBody* body_;
  std::vector<Scope> scopes_;
  std::map<const void*, size_t> watched_;
  std::string out_;
  int captures_ = 0;  ///< depth of output that goes into a value first
  TemplateWork work_;
  std::vector<TextRange> generations_;
  std::vector<TextRange> watched_ranges_;
};

}  // namespace weft
