#include "weft/data/text/added_tokens.h"

#include <algorithm>
#include <cstring>

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
  const auto first = [](const AddedToken& token) { return static_cast<unsigned char>(token.content[0]); };
  std::stable_sort(tokens_.begin(), tokens_.end(), [&](const AddedToken& a, const AddedToken& b) {
    return first(a) != first(b) ? first(a) < first(b) : a.content.size() > b.content.size();
  });
  for (size_t i = 0; i < tokens_.size(); ++i) {
    auto& [begin, end] = by_byte_[first(tokens_[i])];
    if (begin == end) begin = i;
    end = i + 1;
  }
}

const AddedToken* AddedTokens::at(std::string_view text) const {
  const auto [begin, end] = by_byte_[static_cast<unsigned char>(text[0])];
  for (size_t i = begin; i < end; ++i) {
    if (text.starts_with(tokens_[i].content)) return &tokens_[i];
  }
  return nullptr;
}

void AddedTokens::split(std::string_view text, std::vector<Part>& parts) const {
  size_t done = 0;
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
      }
      if (token->takes_right) {
        while (end < text.size() && is_space(utf8_at(text, end).code)) end += utf8_at(text, end).length;
      }
      if (done < begin) parts.push_back({done, begin, -1});
      parts.push_back({begin, end, token->id});
      done = end;
    }
  }
  if (done < text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace weft
