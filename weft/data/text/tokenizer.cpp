#include "weft/data/text/tokenizer.h"

#include <algorithm>

#include "weft/base/utf8.h"

namespace weft {
namespace {

/// Where a place of a normal form lies in the text that it was made of.
size_t place_before(const std::vector<NormalBorder>& borders, size_t after) {
  const auto next = std::upper_bound(borders.begin(), borders.end(), after,
                                     [](size_t at, const NormalBorder& border) { return at < border.after; });
  if (next == borders.begin()) return after;
  const NormalBorder& last = *std::prev(next);
  const size_t place = last.before + (after - last.after);
  return next == borders.end() ? place : std::min(place, next->before);
}

}  // namespace

void Tokenizer::encode(std::string_view text, PieceCache& cache, std::vector<int64_t>& ids,
                       std::vector<size_t>* begins) const {
  if (!is_valid_utf8(text)) {
    const std::string replaced = with_replacements(text);
    return encode(replaced, cache, ids, begins);
  }
  std::vector<AddedTokens::Part> parts;
  plain_added_.split(text, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      if (begins != nullptr) begins->push_back(part.begin);
    } else {
      encode_text(text.substr(part.begin, part.end - part.begin), part.begin, cache, ids, begins);
    }
  }
}

/// Text between tokens that stand in it as they are; it begins at `offset` of the whole.
void Tokenizer::encode_text(std::string_view text, size_t offset, PieceCache& cache, std::vector<int64_t>& ids,
                            std::vector<size_t>* begins) const {
  const size_t first = ids.size();
  Normalized normalized;
  if (form_) normalized = normalize(text, *form_);
  encode_normal(normalized.changed ? normalized.text : text, cache, ids, begins);
  if (begins == nullptr) return;
  for (size_t i = begins->size() - (ids.size() - first); i < begins->size(); ++i) {
    size_t& begin = (*begins)[i];
    if (normalized.changed) begin = place_before(normalized.borders, begin);
    begin += offset;
  }
}

void Tokenizer::encode_normal(std::string_view text, PieceCache& cache, std::vector<int64_t>& ids,
                              std::vector<size_t>* begins) const {
  if (normalized_added_.empty()) return encode_pieces(text, 0, 0, cache, ids, begins);
  std::vector<AddedTokens::Part> parts;
  normalized_added_.split(text, parts);
  for (const AddedTokens::Part& part : parts) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      if (begins != nullptr) begins->push_back(part.begin);
    } else {
      encode_pieces(text.substr(part.begin, part.end - part.begin), 0, part.begin, cache, ids, begins);
    }
  }
}

void Tokenizer::encode_pieces(std::string_view text, size_t level, size_t offset, PieceCache& cache,
                              std::vector<int64_t>& ids, std::vector<size_t>* begins) const {
  if (level < splits_.size()) {
    SplitPattern::Misses misses;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = splits_[level].piece_end(text, begin, misses);
      encode_pieces(text.substr(begin, end - begin), level + 1, offset + begin, cache, ids, begins);
      begin = end;
    }
    return;
  }
  const size_t first = ids.size();
  pairs_.encode(text, cache, ids);
  if (begins == nullptr) return;
  for (size_t i = first; i < ids.size(); ++i) {
    begins->push_back(offset);
    offset += bytes_[static_cast<size_t>(ids[i])].size();
  }
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  PieceCache cache;
  std::vector<int64_t> ids;
  encode(text, cache, ids);
  return ids;
}

std::vector<int64_t> Tokenizer::encode_with_ends(std::string_view text) const {
  PieceCache cache;
  std::vector<int64_t> ids = before_;
  encode(text, cache, ids);
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::string_view Tokenizer::bytes_of(int64_t id) const {
  return id >= 0 && id < size() ? std::string_view(bytes_[static_cast<size_t>(id)]) : std::string_view();
}

bool Tokenizer::is_special(int64_t id) const {
  return id >= 0 && id < size() && is_special_[static_cast<size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<int64_t>& ids, bool skip_special) const {
  std::string bytes;
  for (const int64_t id : ids) {
    if (!skip_special || !is_special(id)) bytes += bytes_of(id);
  }
  return with_replacements(bytes);
}

std::optional<int64_t> Tokenizer::find(std::string_view token) const {
  const auto it = ids_.find(std::string(token));
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::string StreamDecoder::add(int64_t id) {
  if (!skip_special_ || !tokenizer_->is_special(id)) held_ += tokenizer_->bytes_of(id);
  std::string text;
  size_t done = 0;
  while (done < held_.size()) {
    const Utf8Front front = utf8_front(std::string_view(held_).substr(done));
    if (front.length == 0 && front.more) break;
    if (front.length > 0) {
      text.append(held_, done, front.length);
    } else {
      text += "\xef\xbf\xbd";
    }
    done += std::max(front.length, front.broken);
  }
  held_.erase(0, done);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = with_replacements(held_);
  held_.clear();
  return text;
}

}  // namespace weft
