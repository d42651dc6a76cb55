#pragma once

// Functions of loops over numbers are compiled twice, and processors with vectors of 256 bits run the second. Without
// fused multiplication, which rounds otherwise: a picture is the same on every processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE_PREPARE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE_PREPARE
#endif

namespace weft {

/// The compilers' own vector (GCC and clang): arithmetic on it is by element, in whatever registers there are. It is
/// not passed to functions that are not inlined, whose conventions differ between processors.
using Floats8 = float __attribute__((vector_size(32)));

}  // namespace weft
