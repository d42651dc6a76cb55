#include "weft/cli/one_process.h"

#include "weft/comm/launch.h"

namespace weft {

Error told_once(Error error) {
  if (detect_launch().rank == 0) return error;
  return {.kind = error.kind};
}

}  // namespace weft
