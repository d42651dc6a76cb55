#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/layers/loss_settings.h"

namespace weft {

/// The sum over rows of the cross entropy between a row's logits and its target, in fp32 or better. `logits` is used
/// up: the backward turns it into its gradient in place, so it must be a fresh value that nothing else keeps.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, const LossSettings& settings = {});

/// The same where every rank of a group holds the logits of a part of the vocabulary, that from `first_class` on here.
/// All get the sum. Smoothing must know how many classes all of them have.
at::Tensor cross_entropy_sum(const at::Tensor& logits, const at::Tensor& targets, int64_t first_class,
                             const Group& vocabulary, const LossSettings& settings = {}, int64_t num_classes = 0);

}  // namespace weft
