#include "weft/data/conversations/expand_media.h"

#include <algorithm>

namespace weft {
namespace {

/// Whether a template's text for these media is what is tokenized.
bool stays(const MediaToken& token, const MediaSize& size) {
  return size.captions.empty() && token.written() == token.id;
}

std::string written_for(const Tokenizer& tokenizer, const MediaToken& token, const MediaSize& size) {
  const std::string run(tokenizer.bytes_of(token.id));
  std::string text;
  for (int64_t i = 0; i < size.num_runs(); ++i) {
    if (i > 0) text += token.between;
    if (!size.captions.empty()) text += size.captions[static_cast<size_t>(i)];
    text += run;
  }
  return text;
}

/// The first place at or after `from` where a placeholder of some kind stands.
struct Place {
  size_t begin = std::string::npos;
  std::string_view placeholder;
};

Place next_place(const Tokenizer& tokenizer, const MediaTokenRule& rule, const std::string& text, size_t from) {
  Place next;
  for (const MediaToken* token : {&rule.image, &rule.video, &rule.audio}) {
    if (token->id < 0) continue;
    const std::string_view written = tokenizer.bytes_of(token->written());
    if (const size_t begin = text.find(written, from); begin < next.begin) next = {begin, written};
  }
  return next;
}

}  // namespace

ExpandedText expand_media(const Tokenizer& tokenizer, const MediaTokenRule& rule,
                          const std::vector<MediaReference>& media, const std::vector<MediaSize>& sizes,
                          const std::string& text, const std::vector<TextRange>& learnt) {
  ExpandedText expanded{.text = {}, .inserted = {}, .learnt = learnt};
  size_t from = 0;
  for (size_t i = 0; i < media.size(); ++i) {
    const Place place = next_place(tokenizer, rule, text, from);
    if (place.begin == std::string::npos) break;
    const MediaToken& token = rule.of(media[i].kind);
    const size_t end = place.begin + place.placeholder.size();
    expanded.text.append(text, from, place.begin - from);
    from = end;
    if (token.id < 0 || place.placeholder != tokenizer.bytes_of(token.written()) || stays(token, sizes[i])) {
      expanded.text += place.placeholder;
      continue;
    }
    const size_t begin = expanded.text.size();
    expanded.text += written_for(tokenizer, token, sizes[i]);
    expanded.inserted.push_back({begin, expanded.text.size()});
    const size_t growth = expanded.text.size() - begin - place.placeholder.size();
    for (size_t range = 0; range < learnt.size(); ++range) {
      if (learnt[range].begin >= end) expanded.learnt[range].begin += growth;
      if (learnt[range].end >= end) expanded.learnt[range].end += growth;
    }
  }
  expanded.text.append(text, from);
  return expanded;
}

}  // namespace weft
