#include "weft/kernels/sources.h"

#include <array>

namespace weft {

std::span<const KernelSource> kernel_sources() {
  static const std::array<KernelSource, 6> all = {{{"activation", kActivationSource},
                                                   {"column", kColumnSource},
                                                   {"loss", kLossSource},
                                                   {"norm", kNormSource},
                                                   {"rotary", kRotarySource},
                                                   {"update", kUpdateSource}}};
  return all;
}

}  // namespace weft
