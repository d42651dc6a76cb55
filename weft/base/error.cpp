#include "weft/base/error.h"

namespace weft {

std::string Error::message() const {
  std::string text;
  for (const std::string* part : {&source, &field}) {
    if (!part->empty()) text += *part + ": ";
  }
  text += problem;
  if (!advice.empty()) text += ". " + advice;
  return text;
}

}  // namespace weft
