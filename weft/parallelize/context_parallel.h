#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "weft/comm/world.h"
#include "weft/families/numbers.h"
#include "weft/layers/context_attention.h"
#include "weft/models/inputs.h"
#include "weft/plan/plan.h"

namespace weft {

/// Context parallelism of the modules in one pipeline, on one rank: the rows of a batch, tokens and encoders' rows, are
/// shared out to the ranks along cp.
class ContextParallel {
 public:
  /// Of the llm, by its number in the plan, and inline encoders, or of an encoder beside them. Every rank of its mesh
  /// does this alike.
  static Result<ContextParallel> create(World& world, const Plan& plan, size_t module);

  int64_t num_ranks() const { return all_ ? all_->size() : 1; }
  /// The ranks that share out a microbatch; nothing where that is one.
  const std::optional<Group>& group() const { return all_; }

  /// This rank's share of a microbatch, or of an encoder's macro batch, which has no tokens.
  Inputs share(const Inputs& whole, const ModelNumbers& numbers) const;

  /// How a share's rows of a module lie on the ranks; null where one has all.
  std::shared_ptr<const ContextRows> rows(size_t module, ModuleKind kind, const Inputs& share) const;

  /// The rows that an encoder gave on this rank become those that the tokens here need, in the order of their places.
  at::Tensor media_rows(ModuleKind kind, const at::Tensor& made, const Inputs& share) const;

 private:
  std::optional<Group> all_;
  std::vector<ContextGroups> modules_;  ///< of the plan
};

}  // namespace weft
