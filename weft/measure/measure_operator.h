#pragma once

#include "weft/measure/measure_block.h"

namespace weft {

struct MeasuredOperator {
  OperatorMeasurement measurement;
  int64_t outliers = 0;
};

/// Runs an operator of a user's own program by itself until its times are known, on as many ranks at once as the case
/// says. Nothing where it was stopped.
Result<std::optional<MeasuredOperator>> measure_operator(const OperatorCase& op, const MeasureSettings& settings);

}  // namespace weft
