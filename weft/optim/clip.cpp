#include "weft/optim/clip.h"

namespace weft {

double clip_factor(double max_norm, double norm) {
  const double factor = max_norm / (norm + 1e-6);
  // Not std::min: a norm that is not a number must show, as it does in PyTorch.
  return factor > 1 ? 1 : factor;
}

}  // namespace weft
