#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weft/base/result.h"
#include "weft/data/conversations/conversation.h"
#include "weft/data/text/tokenizer.h"
#include "weft/spec/model.h"

namespace weft {

/// How large a picture or a clip is once it is prepared.
struct MediaSize {
  int64_t tokens = 0;   ///< that it takes in the llm
  int64_t patches = 0;  ///< of an image or a video
  double seconds = 0;   ///< of a clip
};

/// Looks at a file's header, or decodes it. The error is about this file alone.
using MeasureMedia = std::function<Result<MediaSize>(const MediaReference&)>;

/// The token that stands for media in a template's text, and is repeated for each of its embeddings.
struct MediaToken {
  int64_t id = -1;      ///< -1: the model has no such media
  int64_t before = -1;  ///< put before the first and after the last, where the template does not write them
  int64_t after = -1;
};

/// The tokens of each kind of media.
struct MediaTokenRule {
  MediaToken image, video, audio;

  const MediaToken& of(MediaKind kind) const {
    return kind == MediaKind::kImage ? image : kind == MediaKind::kVideo ? video : audio;
  }
  /// Whether it is repeated for embeddings, and so is never something to learn.
  bool is_media(int64_t id) const { return id >= 0 && (id == image.id || id == video.id || id == audio.id); }
};

/// An error where the tokenizer gives tokens that the model has no embedding for: it is another model's.
std::optional<Error> find_foreign_tokenizer(const Model& model, const Tokenizer& tokenizer, const std::string& source);

/// From a model's configuration (image_token_id, image_token_index and the like). A token that the tokenizer does not
/// have is an error: it is another model's.
Result<MediaTokenRule> media_token_rule(const Model& model, const Tokenizer& tokenizer, const std::string& source);

}  // namespace weft
