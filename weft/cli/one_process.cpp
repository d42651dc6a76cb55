#include "weft/cli/one_process.h"

#include "weft/comm/launch.h"

namespace weft {

bool is_first_process() {
  return detect_launch().is_speaker();
}

Error told_once(Error error) {
  if (is_first_process()) return error;
  return {.kind = error.kind};
}

}  // namespace weft
