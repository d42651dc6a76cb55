#include "weft/data/conversations/model_text.h"

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file.h"

namespace weft {
namespace {

constexpr DocumentLimits kConfigLimits{.max_bytes = 64u << 20, .max_depth = 64, .max_values = 5'000'000};
constexpr size_t kMostTemplateBytes = 1 << 20;

/// The template of a file's "chat_template", a text or the one named "default" of a list; empty where it has none.
Result<std::string> template_in(const Document& document) {
  const auto wrong = [&](std::string field, const Json& found, const char* needed) {
    return Error{.source = document.source,
                 .field = std::move(field),
                 .problem = fmt::format("is {}, {} is needed", describe_value(found), needed),
                 .advice = "Take the file from the model's own folder."};
  };
  if (!document.root.is_object()) return wrong("", document.root, "a mapping of fields");
  const auto it = document.root.find("chat_template");
  if (it == document.root.end() || it->is_null()) return std::string();
  if (it->is_string()) return it->get<std::string>();
  if (!it->is_array()) return wrong("chat_template", *it, "a text or a list of named ones");
  for (const Json& named : *it) {
    const bool is_default = named.is_object() && named.value("name", Json()) == "default";
    if (is_default && named.contains("template") && named["template"].is_string())
      return named["template"].get<std::string>();
  }
  return std::string();
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
    WEFT_TRY(written, template_in(document));
    source = config.string() + ": chat_template";
    for (const auto& [key, value] : document.root.items()) {
      if (key.ends_with("_token") && !token_in(value).empty()) text.variables[key] = token_in(value);
    }
  }
  // A file of its own is what newer versions write, and counts.
  for (const char* name : {"chat_template.json", "chat_template.jinja"}) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path, ignored)) continue;
    std::string own;
    if (path.extension() == ".jinja") {
      WEFT_TRY(own, read_file(path, kMostTemplateBytes));
    } else {
      WEFT_TRY(const Document document, read_document(path, kConfigLimits));
      WEFT_TRY(own, template_in(document));
      if (own.empty()) continue;
    }
    written = std::move(own);
    source = path.string();
  }
  if (!written.empty()) {
    WEFT_TRY(text.chat, ChatTemplate::parse(written, source));
  }
  return text;
}

}  // namespace weft
