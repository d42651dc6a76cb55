#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/base/result.h"
#include "weft/data/templates/template_run.h"

namespace weft {

/// How a model writes a conversation as text: a Jinja template, rendered as transformers does. Statements, filters and
/// tests that are not known are refused by name when it is read.
class ChatTemplate {
 public:
  static Result<ChatTemplate> parse(std::string_view text, std::string source);

  struct Request {
    Json messages;         ///< a list of {"role": ..., "content": ...}
    Json tools = nullptr;  ///< a list, or null
    bool adds_generation_prompt = false;
    Json variables = Json::object();  ///< others: bos_token, enable_thinking, ...
  };
  struct Rendering {
    std::string text;
    std::vector<TextRange> messages;     ///< what loops wrote for each message; empty where nothing
    std::vector<TextRange> generations;  ///< between {% generation %} and its end
  };
  /// The error says what the template found wrong with the conversation.
  Result<Rendering> render(const Request& request) const;

  bool marks_generation() const { return marks_generation_; }
  const std::string& source() const { return source_; }

 private:
  std::string source_;
  std::shared_ptr<const TemplateBody> body_;
  bool marks_generation_ = false;
};

}  // namespace weft
