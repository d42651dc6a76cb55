#pragma once

#include "weft/base/fields.h"
#include "weft/profile/profile.h"

namespace weft {

// One measurement of a profile, in a document or in a row of a table. Findings say what is wrong.

BlockMeasurement read_block(Fields& fields);
OperatorMeasurement read_operator(Fields& fields);
UpdateMeasurement read_update(Fields& fields);
LinkMeasurement read_link(Fields& fields);

// Times, and how sure they are, brought into the ranges above.
void keep_in_range(double& value, NumberRange range);
void keep_in_range(BlockMeasurement& block);
void keep_in_range(UpdateMeasurement& update);
void keep_in_range(LinkMeasurement& link);

}  // namespace weft
