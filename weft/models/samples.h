#pragma once

#include <vector>

#include "weft/models/inputs.h"

namespace weft {

/// The samples of a batch that `prepare_inputs` accepted, each with its own media and targets.
std::vector<RawInputs> split_samples(const ModelNumbers& numbers, const RawInputs& raw);

}  // namespace weft
