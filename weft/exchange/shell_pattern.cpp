#include "weft/exchange/shell_pattern.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <cctype>
#include <utility>

namespace weft {
namespace {

/// Steps of one comparison: with stars, a text and its pattern can take as many as their lengths' product.
constexpr size_t kMostSteps = size_t{1} << 22;

using Letters = std::bitset<256>;

struct PatternUnit {
  bool is_star = false;
  Letters letters;
};

constexpr std::array<std::pair<std::string_view, int (*)(int)>, 12> kClasses = {{{"alnum", std::isalnum},
                                                                                 {"alpha", std::isalpha},
                                                                                 {"blank", std::isblank},
                                                                                 {"cntrl", std::iscntrl},
                                                                                 {"digit", std::isdigit},
                                                                                 {"graph", std::isgraph},
                                                                                 {"lower", std::islower},
                                                                                 {"print", std::isprint},
                                                                                 {"punct", std::ispunct},
                                                                                 {"space", std::isspace},
                                                                                 {"upper", std::isupper},
                                                                                 {"xdigit", std::isxdigit}}};

class PatternText {
 public:
  explicit PatternText(std::string_view text) : text_(text) {}

  std::vector<PatternUnit> units() {
    std::vector<PatternUnit> units;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '*') {
        if (units.empty() || !units.back().is_star) units.push_back({.is_star = true});
      } else if (c == '?') {
        units.push_back({.letters = Letters().set()});
        has_sets_ = true;
      } else if (c == '[') {
        units.push_back({.letters = set()});
      } else {
        units.push_back({.letters = only(c == '\\' && at_ < text_.size() ? text_[at_++] : c)});
      }
    }
    return units;
  }

  bool has_sets() const { return has_sets_; }  ///< units that stand for one letter of several
  bool is_read() const { return is_read_; }

 private:
  static Letters only(char c) { return Letters().set(static_cast<unsigned char>(c)); }

  /// What stands behind '['; that letter itself where no ']' closes it.
  Letters set() {
    const size_t begin = at_;
    if (!may_close_) return only('[');
    Letters letters;
    const bool is_other = at_ < text_.size() && (text_[at_] == '!' || text_[at_] == '^');
    if (is_other) ++at_;
    for (const size_t first = at_; at_ < text_.size() && (text_[at_] != ']' || at_ == first);) {
      if (text_[at_] == '[' && at_ + 1 < text_.size() &&
          std::string_view(":.=").find(text_[at_ + 1]) != std::string_view::npos) {
        letters |= named();
        continue;
      }
      const unsigned char low = letter();
      unsigned char high = low;
      if (at_ + 1 < text_.size() && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        high = letter();
      }
      for (unsigned c = low; c <= high; ++c) letters.set(c);
    }
    if (at_ >= text_.size()) {
      may_close_ = false;
      at_ = begin;
      return only('[');
    }
    ++at_;
    has_sets_ = true;
    return is_other ? ~letters : letters;
  }

  unsigned char letter() {
    if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
    return static_cast<unsigned char>(text_[at_++]);
  }

  /// [:digit:] and its like.
  Letters named() {
    constexpr size_t kLongestName = 8;
    const std::string_view rest = text_.substr(at_ + 2, kLongestName);
    for (const auto& [name, is_in] : kClasses) {
      if (text_[at_ + 1] != ':' || !rest.starts_with(name) || !rest.substr(name.size()).starts_with(":]")) continue;
      Letters letters;
      for (int c = 0; c < 128; ++c) letters.set(static_cast<size_t>(c), is_in(c) != 0);
      at_ += name.size() + 4;
      return letters;
    }
    is_read_ = false;
    return only(text_[at_++]);
  }

  std::string_view text_;
  size_t at_ = 0;
  bool has_sets_ = false, may_close_ = true, is_read_ = true;
};

bool fits(std::string_view text, const std::vector<PatternUnit>& units) {
  // Where the last star began to stand for letters: one more each time that the rest does not fit.
  size_t t = 0, u = 0, star = units.size(), resume = 0;
  while (t < text.size()) {
    if (u < units.size() && units[u].is_star) {
      star = u++;
      resume = t;
    } else if (u < units.size() && units[u].letters.test(static_cast<unsigned char>(text[t]))) {
      ++u, ++t;
    } else if (star < units.size()) {
      u = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (u < units.size() && units[u].is_star) ++u;
  return u == units.size();
}

}  // namespace

bool is_pattern_letter(char letter) {
  return std::string_view("*?[]\\!^-:").find(letter) != std::string_view::npos;
}

Truth fits_shell_pattern(std::string_view text, std::string_view pattern, size_t& work) {
  work += text.size() + pattern.size();
  if (pattern.find_first_of("*?[\\") == std::string_view::npos) return truth_of(text == pattern);
  if (pattern == "*") return Truth::kTrue;
  if (pattern.size() > kMostSteps / (text.size() + 1)) return Truth::kUnknown;
  work += text.size() * pattern.size();
  PatternText reader(pattern);
  const std::vector<PatternUnit> units = reader.units();
  // A letter of several bytes is one letter to '?' and [...], which see bytes here.
  const auto is_wide = [](unsigned char c) { return c >= 128; };
  const bool is_plain =
      std::none_of(text.begin(), text.end(), is_wide) && std::none_of(pattern.begin(), pattern.end(), is_wide);
  if (!reader.is_read() || (reader.has_sets() && !is_plain)) return Truth::kUnknown;
  return truth_of(fits(text, units));
}

}  // namespace weft
