#pragma once

#include <filesystem>
#include <optional>

#include "weft/data/templates/chat_template.h"
#include "weft/data/text/tokenizer.h"

namespace weft {

/// What a model's folder says of text: its tokenizer, its chat template and the variables that this is rendered with.
struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;
  Json variables = Json::object();  ///< bos_token, eos_token, ...

  /// The error where the folder has no template.
  Result<const ChatTemplate*> chat_template(const std::filesystem::path& folder) const;
};

/// From tokenizer.json, tokenizer_config.json, and chat_template.jinja or chat_template.json where they are.
Result<ModelText> read_model_text(const std::filesystem::path& folder);

}  // namespace weft
