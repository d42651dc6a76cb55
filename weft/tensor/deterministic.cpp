#include "weft/tensor/deterministic.h"

#include <cstdlib>

#include <ATen/Context.h>

namespace weft {

void set_deterministic(bool is_deterministic) {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(is_deterministic, /*warn_only=*/false);
  // Memory that nobody has written yet is nobody's to read here; filling it would only cost time.
  context.setDeterministicFillUninitializedMemory(false);
  // cuBLAS sums in the same order only where its workspaces have a fixed size. Whoever chose one keeps it.
  if (is_deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

}  // namespace weft
