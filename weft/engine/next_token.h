#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/engine/token_choice.h"

namespace weft {

/// The token that a chooser takes by logits [vocabulary] on any device. Logits that are no numbers fail the job.
Result<int64_t> next_token(TokenChooser& chooser, const at::Tensor& logits, size_t num_before);

/// What is wrong then.
Error not_finite_error(size_t num_before);

std::vector<int64_t> tokens_of(const at::Tensor& ids);

}  // namespace weft
