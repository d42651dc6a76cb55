#include "weft/data/conversations/model_text.h"

#include <fmt/format.h>

#include "weft/base/file.h"

namespace weft {
namespace {

constexpr DocumentLimits kConfigLimits{.max_bytes = 64u << 20, .max_depth = 64, .max_values = 5'000'000};
constexpr size_t kMostTemplateBytes = 1 << 20;

/// A template as a text, or the one named "default" of a list.
std::string template_in(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return "";
  for (const Json& named : value) {
    const bool is_default = named.is_object() && named.value("name", Json()) == "default";
    if (is_default && named.contains("template") && named["template"].is_string()) return named["template"];
  }
  return "";
}

/// "<s>", or {"content": "<s>"}.
std::string token_in(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const bool has_content = value.is_object() && value.contains("content") && value["content"].is_string();
  return has_content ? value["content"].get<std::string>() : "";
}

}  // namespace

Result<const ChatTemplate*> ModelText::chat_template(const std::filesystem::path& folder) const {
  if (chat) return &*chat;
  return Error{.source = folder.string(),
               .problem = "has no chat template (chat_template.jinja, chat_template.json, or in tokenizer_config.json)",
               .advice = "Conversations need one: take it from the model's instruction-tuned version."};
}

Result<ModelText> read_model_text(const std::filesystem::path& folder) {
  WEFT_TRY(Tokenizer tokenizer, Tokenizer::read_folder(folder));
  ModelText text{.tokenizer = std::move(tokenizer)};
  std::string source, written;
  std::error_code ignored;
  const std::filesystem::path config = folder / "tokenizer_config.json";
  if (std::filesystem::exists(config, ignored)) {
    WEFT_TRY(const Document document, read_document(config, kConfigLimits));
    if (document.root.is_object()) {
      for (const auto& [key, value] : document.root.items()) {
        if (key.ends_with("_token") && !token_in(value).empty()) text.variables[key] = token_in(value);
      }
      if (document.root.contains("chat_template")) {
        written = template_in(document.root["chat_template"]);
        source = config.string() + ": chat_template";
      }
    }
  }
  // A file of its own is what newer versions write, and counts.
  for (const char* name : {"chat_template.json", "chat_template.jinja"}) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    source = path.string();
    if (path.extension() == ".jinja") {
      WEFT_TRY(written, read_file(path, kMostTemplateBytes));
    } else {
      WEFT_TRY(const Document document, read_document(path, kConfigLimits));
      if (document.root.is_object() && document.root.contains("chat_template"))
        written = template_in(document.root["chat_template"]);
    }
  }
  if (!written.empty()) {
    WEFT_TRY(text.chat, ChatTemplate::parse(written, source));
  }
  return text;
}

}  // namespace weft
