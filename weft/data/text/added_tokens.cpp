#include "weft/data/text/added_tokens.h"

#include <algorithm>
#include <span>

#include "weft/base/utf8.h"
#include "weft/data/text/characters.h"

namespace weft {
namespace {

bool is_word(char32_t code) {
  return Characters::get().has(code, Characters::kWord);
}

bool is_space(char32_t code) {
  return Characters::get().has(code, Characters::kSpace);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)), by_byte_(256) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  const auto same = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; });
  // Different texts can be one in a normal form: the first counts.
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());
  for (size_t i = 0; i < tokens_.size(); ++i) {
    size_t shorter = i > 0 ? i - 1 : kNone;
    while (shorter != kNone && !tokens_[i].content.starts_with(tokens_[shorter].content)) shorter = shorter_[shorter];
    shorter_.push_back(shorter);
    auto& [begin, end] = by_byte_[static_cast<unsigned char>(tokens_[i].content[0])];
    if (begin == end) begin = i;
    end = i + 1;
  }
}

const AddedToken* AddedTokens::at(std::string_view text) const {
  const auto [begin, end] = by_byte_[static_cast<unsigned char>(text[0])];
  if (begin == end) return nullptr;
  const auto tokens = std::span(tokens_).subspan(begin, end - begin);
  const auto next = std::upper_bound(tokens.begin(), tokens.end(), text,
                                     [](std::string_view t, const AddedToken& token) { return t < token.content; });
  // All tokens that the text begins with are the last one before it, or begin that one.
  size_t token = next == tokens.begin() ? kNone : begin + static_cast<size_t>(next - tokens.begin()) - 1;
  while (token != kNone && !text.starts_with(tokens_[token].content)) token = shorter_[token];
  return token == kNone ? nullptr : &tokens_[token];
}

void AddedTokens::split(std::string_view text, std::vector<Part>& parts) const {
  size_t done = 0;
  size_t spaces_begin = 0, spaces_end = 0;
  // Blanks that one token has taken can be a token, too, and then its blanks are the rest of the same ones.
  const auto end_of_spaces = [&](size_t at) {
    if (at >= spaces_begin && at < spaces_end) return spaces_end;
    spaces_begin = spaces_end = at;
    while (spaces_end < text.size() && is_space(utf8_at(text, spaces_end).code))
      spaces_end += utf8_at(text, spaces_end).length;
    return spaces_end;
  };
  if (!tokens_.empty()) {
    for (size_t i = 0; i < text.size();) {
      const AddedToken* token = at(text.substr(i));
      if (token == nullptr) {
        ++i;
        continue;
      }
      size_t begin = i;
      size_t end = i + token->content.size();
      i = end;
      if (token->is_single_word) {
        const bool touches_left = begin > 0 && is_word(utf8_at(text, utf8_before(text, begin)).code);
        const bool touches_right = end < text.size() && is_word(utf8_at(text, end).code);
        if (touches_left || touches_right) continue;
      }
      if (token->takes_left) {
        while (begin > done) {
          const size_t before = utf8_before(text, begin);
          if (!is_space(utf8_at(text, before).code)) break;
          begin = before;
        }
        begin = std::max(begin, done);
      }
      if (token->takes_right) end = end_of_spaces(end);
      if (begin >= end) continue;  // the token before has taken these blanks
      if (done < begin) parts.push_back({done, begin, -1});
      parts.push_back({begin, end, token->id});
      done = end;
    }
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace weft
