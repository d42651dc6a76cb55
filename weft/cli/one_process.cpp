#include "weft/cli/one_process.h"

#include "weft/comm/launch.h"

namespace weft {

Error told_once(Error error) {
  if (detect_launch().is_speaker()) return error;
  return {.kind = error.kind};
}

}  // namespace weft
