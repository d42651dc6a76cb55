#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
  /// Where frames of a video are taken apart, a text for each, which stands before its tokens.
  std::vector<std::string> captions = {};

  /// Stretches of equally many tokens.
  int64_t num_runs() const { return std::max<int64_t>(1, std::ssize(captions)); }
};

/// Looks at a file's header, or decodes it. The error is about this file alone.
using MeasureMedia = std::function<Result<MediaSize>(const MediaReference&)>;

/// The token that is repeated for each embedding of media, and what stands for them in a template's text.
struct MediaToken {
  int64_t id = -1;      ///< -1: the model has no such media
  int64_t before = -1;  ///< put before the first of a run and after the last, beside what the template writes
  int64_t after = -1;
  int64_t placeholder = -1;  ///< in the template's text; -1: the same token
  std::string between = {};  ///< two frames that are taken apart

  int64_t written() const { return placeholder >= 0 ? placeholder : id; }
};

/// The tokens of each kind of media.
struct MediaTokenRule {
  MediaToken image, video, audio;

  const MediaToken& of(MediaKind kind) const {
    return kind == MediaKind::kImage ? image : kind == MediaKind::kVideo ? video : audio;
  }
  /// Whether it stands for media, and so is never something to learn.
  bool is_media(int64_t id) const {
    const auto is_of = [&](const MediaToken& token) { return id == token.id || id == token.placeholder; };
    return id >= 0 && (is_of(image) || is_of(video) || is_of(audio));
  }
};

/// An error where the tokenizer gives tokens that the model has no embedding for: it is another model's.
std::optional<Error> find_foreign_tokenizer(const Model& model, const Tokenizer& tokenizer, const std::string& source);

/// By what a model's family says. A token that the tokenizer does not have is an error: it is another model's.
Result<MediaTokenRule> media_token_rule(const Model& model, const Tokenizer& tokenizer, const std::string& source);

}  // namespace weft
