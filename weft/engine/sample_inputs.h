#pragma once

#include <vector>

#include "weft/data/sample.h"
#include "weft/data/sample_form.h"
#include "weft/models/inputs.h"

namespace weft {

/// What samples for a model must look like.
SampleForm sample_form(const ModelNumbers& numbers, int64_t vocabulary);

/// Samples one after the other, as tensors under Hugging Face's names.
Result<RawInputs> raw_inputs_of(const ModelNumbers& numbers, const std::vector<Sample>& samples);

/// The same as a batch that fits the model.
Result<Inputs> inputs_of(const ModelNumbers& numbers, int64_t vocabulary, const std::vector<Sample>& samples,
                         const WantedMedia& wanted = {}, const std::optional<StepDraws>& draws = std::nullopt);

}  // namespace weft
