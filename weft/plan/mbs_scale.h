#pragma once

#include <string>

#include "weft/base/fields.h"
#include "weft/plan/plan.h"

namespace weft {

/// "2", or "1/4".
std::string mbs_scale_text(const ModulePlan& module);

/// In lowest terms.
void set_mbs_scale(ModulePlan& module, int64_t scale, int64_t parts);

/// A whole number is a number, a fraction its text.
Json mbs_scale_to_json(const ModulePlan& module);

/// Reads the field "mbs_scale", 1 where it is missing: a whole number, from version 2 on also a text like "1/4".
void read_mbs_scale(Fields& fields, int64_t version, ModulePlan& module);

}  // namespace weft
