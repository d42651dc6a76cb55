#pragma once

namespace weft {

/// Some virtual machines say that the processor has matrix tiles (AMX) but not how many and how large. oneDNN, which
/// multiplies LibTorch's bf16 matrices, then configures none and dies of an illegal instruction. There, this keeps it
/// from tiles, unless ONEDNN_MAX_CPU_ISA is set; elsewhere it does nothing. To be called before LibTorch computes.
void avoid_undescribed_tiles();

}  // namespace weft
