#include "weft/checkpoint/load_checkpoint.h"

#include <ATen/core/grad_mode.h>

#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/stored_weights.h"
#include "weft/optim/owned_pieces.h"

namespace weft {
namespace {

std::optional<Error> fill_optimizer(StoredWeights& stored, const StageOptimizer& optimizer) {
  for (const OwnedPiece& owned : owned_pieces(optimizer)) {
    if (owned.piece->name.empty()) {
      for (const at::Tensor* tensor : {&owned.state.master, &owned.state.moment1, &owned.state.moment2})
        if (tensor->defined()) tensor->zero_();
      continue;
    }
    if (auto error = stored.fill(*owned.piece, owned.elements, owned.state, optimizer.owner_rank())) return error;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> load_checkpoint(const Checkpoint& checkpoint, Group& everyone,
                                     std::span<StageOptimizer* const> optimizers) {
  const at::NoGradGuard no_graph;
  std::optional<Error> error;
  {
    StoredWeights stored(checkpoint);
    for (const StageOptimizer* optimizer : optimizers) {
      if (!error) error = fill_optimizer(stored, *optimizer);
    }
  }
  // Ranks that go on gather values from all others.
  if (auto failed = first_error(everyone, error)) return failed;
  for (StageOptimizer* optimizer : optimizers) optimizer->restore(checkpoint.updates);
  return std::nullopt;
}

}  // namespace weft
