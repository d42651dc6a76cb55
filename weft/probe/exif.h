#pragma once

#include <cstdint>

#include "weft/probe/header_bytes.h"

namespace weft {

/// The orientation that an EXIF block of `length` bytes at `begin` names, 1 where it names none that is known.
int exif_orientation(HeaderBytes& bytes, int64_t begin, int64_t length);

}  // namespace weft
