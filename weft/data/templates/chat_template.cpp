#include "weft/data/templates/chat_template.h"

#include <fmt/format.h>

#include "weft/base/utf8.h"
#include "weft/data/templates/template_fault.h"

namespace weft {
namespace {

constexpr size_t kMostBytes = 1 << 20;

bool has_generation(const TemplateBody& body) {
  for (const TemplateStatement& statement : body) {
    if (statement.kind == TemplateStatement::Kind::kGeneration) return true;
    for (const TemplateBody& inner : statement.bodies) {
      if (has_generation(inner)) return true;
    }
  }
  return false;
}

Error error_of(const TemplateFault& fault, const std::string& source, std::string advice) {
  return Error{.source = source,
               .field = fault.line > 0 ? fmt::format("line {}", fault.line) : "",
               .problem = fault.what(),
               .advice = std::move(advice)};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view text, std::string source) {
  ChatTemplate made;
  made.source_ = std::move(source);
  if (text.size() > kMostBytes || !is_valid_utf8(text)) {
    return Error{.source = made.source_,
                 .problem = fmt::format("is no UTF-8 text of at most {} bytes", kMostBytes),
                 .advice = "Check that this is a chat template."};
  }
  try {
    made.body_ = std::make_shared<const TemplateBody>(parse_template(text));
  } catch (const TemplateFault& fault) {
    return error_of(fault, made.source_, "docs/manual/data.md lists what chat templates may use.");
  }
  made.marks_generation_ = has_generation(*made.body_);
  return made;
}

Result<ChatTemplate::Rendering> ChatTemplate::render(const Request& request) const {
  try {
    TemplateRun::Scope variables;
    for (const auto& [name, value] : request.variables.items()) variables[name] = TemplateValue::of(value);
    const TemplateValue messages = TemplateValue::of(request.messages);
    variables["messages"] = messages;
    variables["tools"] = TemplateValue::of(request.tools);
    variables["documents"] = TemplateValue();
    variables["add_generation_prompt"] = TemplateValue(request.adds_generation_prompt);
    TemplateRun run(*body_, std::move(variables), messages);
    Rendering rendering;
    rendering.text = run.run();
    rendering.messages = run.watched_ranges();
    rendering.generations = run.generations();
    return rendering;
  } catch (const TemplateFault& fault) {
    return error_of(fault, source_, "Check the conversation, or the template.");
  }
}

}  // namespace weft
