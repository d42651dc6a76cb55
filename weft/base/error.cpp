#include "weft/base/error.h"

#include "weft/base/text.h"

namespace weft {

std::string Error::message() const {
  std::string text;
  for (const std::string* part : {&source, &field}) {
    if (!part->empty()) text += *part + ": ";
  }
  text += problem;
  if (!advice.empty()) text += ". " + advice;
  // File names and names inside files can hold anything.
  constexpr size_t kLongest = 4000;
  return printable(text, kLongest);
}

}  // namespace weft
