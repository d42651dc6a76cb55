#pragma once

namespace weft {

/// Whether LibTorch's operators give the same bits every time they are given the same. Processors do in any case; on
/// GPUs some kernels are then slower, and others are used for attention. Must be called before the first product on a
/// GPU, since libraries look at it once.
void set_deterministic(bool is_deterministic);

}  // namespace weft
