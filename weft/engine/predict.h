#pragma once

#include "weft/base/result.h"
#include "weft/engine/predict_request.h"

namespace weft {

/// Continues the prompts of a file. All of them are checked before the first weight is read.
Result<PredictReport> predict(const PredictRequest& request);

}  // namespace weft
