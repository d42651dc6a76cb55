#pragma once

#include "weft/base/result.h"

namespace weft {

/// Whether this process speaks for all of a run.
bool is_first_process();

/// An error that every process of a run finds, like a file that cannot be read: as it is in the process of rank 0,
/// without words in the others.
Error told_once(Error error);

}  // namespace weft
