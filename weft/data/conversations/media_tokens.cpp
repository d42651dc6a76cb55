#include "weft/data/conversations/media_tokens.h"

#include <tuple>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

std::optional<Error> find_foreign_tokenizer(const Model& model, const Tokenizer& tokenizer, const std::string& source) {
  const int64_t vocabulary = vocabulary_of(model);
  if (vocabulary == 0 || tokenizer.size() <= vocabulary) return std::nullopt;
  return Error{.source = source,
               .problem = fmt::format("has tokens up to {}, but {}'s vocab_size is {}", tokenizer.size() - 1,
                                      model.name, vocabulary),
               .advice = "The tokenizer is another model's: take tokenizer.json from the folder of this one."};
}

Result<MediaTokenRule> media_token_rule(const Model& model, const Tokenizer& tokenizer, const std::string& source) {
  MediaTokenRule rule;
  const auto no_token = [&](const std::string& token, const std::string& kind) {
    return Error{
        .source = source,
        .problem = fmt::format("has no token {}, which {}'s processor writes for {}s", token, model.name, kind),
        .advice = "The tokenizer is another model's: take tokenizer.json from the folder of this one."};
  };
  const MediaTokens& ids = model.numbers.media.tokens;
  const bool has_vision = model.numbers.vision.has_value(), has_audio = model.numbers.audio.has_value();
  for (const auto& [name, id, token] : {std::tuple("image", has_vision ? ids.image : -1, &rule.image),
                                        std::tuple("video", has_vision ? ids.video : -1, &rule.video),
                                        std::tuple("audio", has_audio ? ids.audio : -1, &rule.audio)}) {
    token->id = id;
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
      if (!found && written != &text->placeholder) return no_token(*written, name);
      if (!found) token->id = -1;  // a tokenizer from before such media
      *id = found.value_or(-1);
    }
    token->between = text->between;
  }
  return rule;
}

}  // namespace weft
