#pragma once

#include "weft/base/fields.h"
#include "weft/probe/patch_rules.h"

namespace weft {

/// A file that says of which processor it is, and is of none of these, is complained about.
void check_processor(Fields& fields, ProcessorNames processors);

/// How a picture's bytes become values, which all processors name alike. A step that is left out, and a way of resizing
/// that is not the one there is, are complained about.
void read_pixel_values(Fields& fields, PatchRules& rules);

}  // namespace weft
