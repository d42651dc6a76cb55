#include "tests/support/source_tree.h"

namespace weft {

std::filesystem::path source_tree() {
  return WEFT_SOURCE_DIR;
}

std::filesystem::path build_tree() {
  return WEFT_BUILD_DIR;
}

}  // namespace weft
