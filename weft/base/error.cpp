#include "weft/base/error.h"

#include "weft/base/text.h"

namespace weft {

std::string Error::message() const {
  std::string text;
  for (const std::string* part : {&source, &field}) {
    if (!part->empty()) text += *part + ": ";
  }
  text += problem;
  // A problem may end by asking what was meant.
  if (!advice.empty()) text += (problem.ends_with('?') ? " " : ". ") + advice;
  // File names and names inside files can hold anything.
  constexpr size_t kLongest = 4000;
  return printable(text, kLongest);
}

}  // namespace weft
