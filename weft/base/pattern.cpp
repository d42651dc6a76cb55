#include "weft/base/pattern.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {

/// Of a pattern's letters between two stars.
bool fits_here(std::string_view text, std::string_view letters) {
  return text.size() >= letters.size() && std::equal(letters.begin(), letters.end(), text.begin(),
                                                     [](char wanted, char c) { return wanted == '?' || wanted == c; });
}

/// Where the letters first stand in the text.
size_t find_letters(std::string_view text, std::string_view letters) {
  if (letters.find('?') == std::string_view::npos) return text.find(letters);
  for (size_t at = 0; at + letters.size() <= text.size(); ++at) {
    if (fits_here(text.substr(at), letters)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

bool fits_pattern(std::string_view text, std::string_view pattern) {
  const size_t first = pattern.find('*');
  if (first == std::string_view::npos) return text.size() == pattern.size() && fits_here(text, pattern);
  // What stands before the first star and behind the last has one place only, which most texts fail at.
  const size_t last = pattern.rfind('*');
  const std::string_view begin = pattern.substr(0, first), end = pattern.substr(last + 1);
  if (text.size() < begin.size() + end.size() || !fits_here(text, begin) ||
      !fits_here(text.substr(text.size() - end.size()), end))
    return false;
  text = text.substr(begin.size(), text.size() - begin.size() - end.size());
  pattern = pattern.substr(first, last - first + 1);
  // The rest in order, each as early as it can be: a later place would leave less for those behind it.
  while (!pattern.empty()) {
    const size_t star = pattern.find('*');
    const std::string_view letters = pattern.substr(0, star);
    const size_t at = find_letters(text, letters);
    if (at == std::string_view::npos) return false;
    text = text.substr(at + letters.size());
    pattern = pattern.substr(star + 1);
  }
  return true;
}

}  // namespace weft
