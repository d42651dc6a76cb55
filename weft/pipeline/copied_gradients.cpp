#include "weft/pipeline/copied_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "weft/base/check.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

/// The elements of a piece in its parameter.
template <typename Visit>
void each_piece(const Parameter& parameter, Visit visit) {
  int64_t begin = 0;
  for (const WeightPiece& piece : parameter.spec.pieces) {
    visit(piece, ElementRange{begin, begin + piece.num_elements()});
    begin += piece.num_elements();
  }
}

std::vector<CopiedGradients> find_copies_of(const StageBlock& block, const StageModel& stage,
                                            const ModuleGroups& groups) {
  const TensorShare share{groups.tensor.mesh().num_ranks(), groups.tensor.position()};
  CopiedGradients whole{.group = groups.tensor.along({0}), .parts = {}};
  CopiedGradients of_experts{.group = groups.tensor.along({0}), .is_of_experts = true, .parts = {}};
  std::vector<std::pair<ParameterPtr, ElementRange>> keys;
  for (const ParameterPtr& parameter : block.parameters) {
    if (!parameter->is_trainable()) continue;
    const bool sees_part_of_rows =
        !parameter->spec.has_whole_gradient && (parameter->spec.sees_divided || stage.has_divided_rows(parameter));
    each_piece(*parameter, [&](const WeightPiece& piece, ElementRange elements) {
      if (piece.cut.unit == CutUnit::kNone) {
        CopiedGradients& own = groups.experts && piece.is_expert ? of_experts : whole;
        if (sees_part_of_rows) own.parts.emplace_back(parameter, elements);
        return;
      }
      const int64_t count = copies_of(piece, share).count;
      if (count == 1) return;
      WEFT_CHECK(groups.same_keys && groups.same_keys->size() == count, "{} ranks have copies of {}, but {} sum them",
                 count, parameter->name(), groups.same_keys ? groups.same_keys->size() : 1);
      keys.emplace_back(parameter, elements);
    });
  }
  std::vector<CopiedGradients> found;
  if (!whole.parts.empty()) found.push_back(std::move(whole));
  if (!of_experts.parts.empty()) found.push_back(std::move(of_experts));
  if (!keys.empty()) found.push_back({.group = *groups.same_keys, .parts = std::move(keys)});
  return found;
}

}  // namespace

std::vector<std::vector<CopiedGradients>> find_copies(const StageModel& stage, const ModuleGroups& groups) {
  std::vector<std::vector<CopiedGradients>> copies(stage.blocks().size());
  if (groups.tensor.mesh().num_ranks() == 1) return copies;
  for (size_t block = 0; block < copies.size(); ++block)
    copies[block] = find_copies_of(stage.blocks()[block], stage, groups);
  return copies;
}

void sum_copies(CopiedGradients& copies) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> views;
  for (const auto& [parameter, elements] : copies.parts) {
    if (!parameter->gradient.defined()) continue;  // on all ranks alike: they have the same data
    views.push_back(parameter->gradient.view({-1}).narrow(0, elements.begin, elements.size()));
  }
  if (views.empty()) return;
  const at::Tensor together = at::cat(views);
  copies.group.all_reduce(buffer_of(together), Reduction::kSum).wait();
  int64_t begin = 0;
  for (const at::Tensor& view : views) {
    view.copy_(together.narrow(0, begin, view.size(0)));
    begin += view.size(0);
  }
}

}  // namespace weft
