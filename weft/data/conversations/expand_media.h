#pragma once

#include <string>
#include <vector>

#include "weft/data/conversations/encode_conversation.h"

namespace weft {

/// A conversation's text in which every run of a media token is written once, as itself.
struct ExpandedText {
  std::string text;
  std::vector<TextRange> inserted;  ///< what was written for media
  std::vector<TextRange> learnt;    ///< the given ranges, where they lie now
};

/// Writes captions of frames, and the tokens that they stand before, in place of what the template wrote for videos. A
/// placeholder for which there are no media stays.
ExpandedText expand_media(const Tokenizer& tokenizer, const MediaTokenRule& rule,
                          const std::vector<MediaReference>& media, const std::vector<MediaSize>& sizes,
                          const std::string& text, const std::vector<TextRange>& learnt);

}  // namespace weft
