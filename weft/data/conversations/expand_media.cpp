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

/// Finds placeholders from the left: each kind's next place is kept until it is passed, so that the text is gone
/// through once for each kind, also for one that does not stand in it.
class Places {
 public:
  struct Place {
    size_t begin = std::string::npos;
    std::string_view placeholder;
  };

  Places(const Tokenizer& tokenizer, const MediaTokenRule& rule, const std::string& text) : text_(text) {
    for (const MediaToken* token : {&rule.image, &rule.video, &rule.audio}) {
      if (token->id < 0) continue;
      const std::string_view written = tokenizer.bytes_of(token->written());
      next_.push_back({text.find(written), written});
    }
  }

  /// The first at or after `from`, which never goes back.
  Place next(size_t from) {
    Place first;
    for (Place& next : next_) {
      if (next.begin < from) next.begin = text_.find(next.placeholder, from);
      if (next.begin < first.begin) first = next;
    }
    return first;
  }

 private:
  const std::string& text_;
  std::vector<Place> next_;  ///< of each kind
};

/// How much longer a text has become up to its places.
class Growth {
 public:
  /// Ascending. What was replaced by less shrinks: sums are right where they wrap.
  void add(size_t place, size_t bytes) {
    places_.push_back(place);
    sums_.push_back((sums_.empty() ? 0 : sums_.back()) + bytes);
  }
  size_t moved(size_t place) const {
    const auto behind = std::upper_bound(places_.begin(), places_.end(), place);
    return behind == places_.begin() ? place : place + sums_[static_cast<size_t>(behind - places_.begin()) - 1];
  }

 private:
  std::vector<size_t> places_, sums_;
};

}  // namespace

ExpandedText expand_media(const Tokenizer& tokenizer, const MediaTokenRule& rule,
                          const std::vector<MediaReference>& media, const std::vector<MediaSize>& sizes,
                          const std::string& text, const std::vector<TextRange>& learnt) {
  ExpandedText expanded;
  Places places(tokenizer, rule, text);
  Growth growth;
  size_t from = 0;
  for (size_t i = 0; i < media.size(); ++i) {
    const Places::Place place = places.next(from);
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
    growth.add(end, expanded.text.size() - begin - place.placeholder.size());
  }
  expanded.text.append(text, from);
  for (const TextRange& range : learnt) expanded.learnt.push_back({growth.moved(range.begin), growth.moved(range.end)});
  return expanded;
}

}  // namespace weft
