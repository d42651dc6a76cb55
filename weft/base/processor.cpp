#include "weft/base/processor.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace weft {

void avoid_undescribed_tiles() {
#if defined(__x86_64__)
  constexpr unsigned kFeatures = 7, kTilePalettes = 0x1d, kTileBit = 1U << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) == 0 || (d & kTileBit) == 0) return;
  // The first palette: its low half of b is a tile's bytes a row, the high half how many tiles there are.
  const bool is_described = __get_cpuid_count(kTilePalettes, 1, &a, &b, &c, &d) != 0 && b != 0;
  if (!is_described) setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", /*overwrite=*/0);
#endif
}

}  // namespace weft
