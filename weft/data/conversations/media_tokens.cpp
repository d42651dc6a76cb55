#include "weft/data/conversations/media_tokens.h"

#include <tuple>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// A token's id by one of its names in the configuration, or in one that it is nested in.
int64_t token_in_config(const Json& config, const std::string& name) {
  if (!config.is_object()) return -1;
  for (const char* ending : {"_token_id", "_token_index"}) {
    const auto it = config.find(name + ending);
    if (it != config.end() && it->is_number_integer()) return it->get<int64_t>();
  }
  for (const char* inner : {"thinker_config", "text_config"}) {
    const auto it = config.find(inner);
    if (it == config.end()) continue;
    if (const int64_t id = token_in_config(*it, name); id >= 0) return id;
  }
  return -1;
}

/// The size of the vocabulary, where the configuration has it; 0 where not.
int64_t vocabulary_in_config(const Json& config) {
  if (!config.is_object()) return 0;
  const auto it = config.find("vocab_size");
  if (it != config.end() && it->is_number_integer()) return it->get<int64_t>();
  for (const char* inner : {"thinker_config", "text_config", "llm_config"}) {
    if (!config.contains(inner)) continue;
    if (const int64_t size = vocabulary_in_config(config[inner]); size > 0) return size;
  }
  return 0;
}

}  // namespace

std::optional<Error> find_foreign_tokenizer(const Model& model, const Tokenizer& tokenizer, const std::string& source) {
  const int64_t vocabulary = vocabulary_in_config(model.config);
  if (vocabulary == 0 || tokenizer.size() <= vocabulary) return std::nullopt;
  return Error{.source = source,
               .problem = fmt::format("has tokens up to {}, but {}'s vocab_size is {}", tokenizer.size() - 1,
                                      model.name, vocabulary),
               .advice = "The tokenizer is another model's: take tokenizer.json from the folder of this one."};
}

Result<MediaTokenRule> media_token_rule(const Model& model, const Tokenizer& tokenizer, const std::string& source) {
  MediaTokenRule rule;
  const auto no_token = [&](const std::string& token, const std::string& kind) {
    return Error{.source = source,
                 .problem = fmt::format("has no token {}, which {}'s processor writes for {}s", token, model.name, kind),
                 .advice = "The tokenizer is another model's: take tokenizer.json from the folder of this one."};
  };
  struct Kind {
    const char* name;
    ModuleKind module;
    MediaToken* token;
  };
  for (const auto& [name, module, token] :
       {Kind{"image", ModuleKind::kVision, &rule.image}, Kind{"video", ModuleKind::kVision, &rule.video},
        Kind{"audio", ModuleKind::kAudio, &rule.audio}}) {
    if (model.find(module) == nullptr) continue;
    token->id = token_in_config(model.config, name);
    if (token->id < 0) continue;
    if (token->id >= tokenizer.size() || tokenizer.bytes_of(token->id).empty()) {
      return Error{.source = source,
                   .problem = fmt::format("has no token {}, which {}'s configuration names for {}s", token->id,
                                          model.name, name),
                   .advice = "The tokenizer is another model's: take tokenizer.json from the folder of this one."};
    }
  }
  // Frames of a video are pictures where it has no token of its own.
  const ModelNumbers& numbers = model.numbers;
  if (rule.video.id < 0 && !numbers.video_text.placeholder.empty()) rule.video.id = rule.image.id;
  for (const auto& [name, text, token] :
       {std::tuple("image", &numbers.image_text, &rule.image), std::tuple("video", &numbers.video_text, &rule.video)}) {
    if (token->id < 0) continue;
    for (const auto& [written, id] : {std::pair(&text->before, &token->before), std::pair(&text->after, &token->after),
                                      std::pair(&text->placeholder, &token->placeholder)}) {
      if (written->empty()) continue;
      const auto found = tokenizer.find(*written);
      if (!found) return no_token(*written, name);
      *id = *found;
    }
    token->between = text->between;
  }
  return rule;
}

}  // namespace weft
