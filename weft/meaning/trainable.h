#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/pattern.h"
#include "weft/meaning/op_share.h"
#include "weft/meaning/violation.h"
#include "weft/plan/plan.h"
#include "weft/spec/adapters.h"
#include "weft/spec/backward_needs.h"

namespace weft {

/// Whether gradients come to an operator's output and go on to its input, and which of its weights have some.
struct OpGradients {
  bool of_output = false;
  bool of_input = false;
  bool of_weight = false;  ///< its first, or the table that a tied head reads
  bool of_bias = false;    ///< its second
};

/// Which weights of a plan are trained: those of modules that the workload does not freeze, where the model has
/// adapters these alone, as changed by the plan's rules, of which later ones win. The plan must outlive it. Places are
/// weight_names': 0 is a module's entry.
class Trainable {
 public:
  explicit Trainable(const Plan& plan) : plan_(plan), has_adapters_(has_adapters(plan.model)) {}

  /// Whether weights of one module may differ.
  bool has_rules() const { return !plan_.trainable.empty() || has_adapters_; }
  /// Whether weights of equal layers may.
  bool has_own_rules() const { return !plan_.trainable.empty(); }
  /// A weight by its name in weight files.
  bool is_trained(ModuleKind kind, std::string_view name) const;
  /// Whether any weight of the module is.
  bool trains(ModuleKind kind) const { return first_trained(kind) < end_of(kind); }
  /// The first block of the module with a trained weight; the number of its blocks where it has none.
  int64_t first_trained(ModuleKind kind) const;
  /// The first block of the module to which gradients of its rows go back: with a trained weight that rows pass, which
  /// the marks of an audio encoder's clips are not. The number of its blocks where it has none.
  int64_t first_with_gradients(ModuleKind kind) const;
  /// Whether the llm hands gradients of rows back to an encoder: one beside the pipeline gets them for any trained
  /// weight, since they are part of its schedule.
  bool gives_gradients(const ModulePlan& encoder) const;
  /// Whether the llm's table of embeddings is.
  bool trains_table() const;
  /// Whether gradients reach all experts in every microbatch, or none in any. One with media of a trained encoder may
  /// go further back than one without; ranks among which experts are shared out would wait for each other.
  bool reaches_experts_alike() const;

  /// By weight of a block, in op_share's order.
  std::vector<bool> weights_of(ModuleKind kind, int64_t place) const;
  /// Elements of a block's trained weights on a rank.
  LocalParameters trained_parameters(ModuleKind kind, int64_t place, const OpShare& share) const;
  /// The backward goes no further than some trained weight needs: an encoder's weights need it through all of the llm.
  BackwardNeeds backward_of(ModuleKind kind, int64_t place) const;
  BackwardNeeds backward_of(ModuleKind kind) const;
  /// The same as passes through a block: in a layer with a trained weight gradients of inputs are made, though its own
  /// input may need none.
  BackwardNeeds passes_of(ModuleKind kind, int64_t place) const;
  /// By operator of a block: where its input needs no gradient, they go no further back than its first trained weight.
  std::vector<OpGradients> gradients_of(ModuleKind kind, int64_t place, bool has_input_gradient) const;

 private:
  int64_t end_of(ModuleKind kind) const;
  bool trains_an_encoder() const;
  bool has_trained(ModuleKind kind, int64_t place, bool that_rows_pass) const;

  const Plan& plan_;
  bool has_adapters_;
  // By kind of module, once they have been found.
  mutable std::array<int64_t, 3> first_{-1, -1, -1};
  mutable std::array<int64_t, 3> first_with_gradients_{-1, -1, -1};
};

/// Whether a step changes some weight of a module.
inline bool trains(const Plan& plan, ModuleKind module) {
  return Trainable(plan).trains(module);
}
/// Which gradients the backward of some block of a module makes; none: it has no backward, and keeps nothing for one.
inline BackwardNeeds backward_of(const Plan& plan, ModuleKind module) {
  return Trainable(plan).backward_of(module);
}

/// What is wrong with a plan's rules: patterns that no weight fits, weights that lie together but are not trained
/// together, and nothing left to train.
std::vector<Violation> find_bad_rules(const Plan& plan);

}  // namespace weft
