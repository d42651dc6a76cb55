#include "weft/base/error.h"

#include "weft/base/text.h"

namespace weft {

std::string Error::message() const {
  // File names and names inside files can hold anything, of any length; the problem is shown in any case.
  constexpr size_t kLongestPlace = 1000, kLongest = 4000;
  std::string text;
  for (const std::string* part : {&source, &field}) {
    if (!part->empty()) text += printable(*part, kLongestPlace) + ": ";
  }
  text += problem;
  // A problem may end by asking what was meant.
  if (!advice.empty()) text += (problem.ends_with('?') ? " " : ". ") + advice;
  return printable(text, kLongest);
}

}  // namespace weft
