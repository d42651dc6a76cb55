#pragma once

#include <random>
#include <string>

#include "weft/plan/plan.h"

namespace weft {

/// Random changes of plans, over all fields that training obeys. A changed plan need not be legal.
class LocalMoves {
 public:
  explicit LocalMoves(uint64_t seed) : random_(seed) {}

  /// The name of what was changed; empty where the change that was drawn cannot be made, and the plan is as it was.
  std::string change(Plan& plan);

  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  using Move = bool (LocalMoves::*)(Plan&);
  struct NamedMove {
    const char* name;
    Move move;
    int weight;
  };
  static const std::vector<NamedMove>& moves();

  bool move_degrees(Plan& plan);
  bool move_ulysses(Plan& plan);
  bool move_experts(Plan& plan);
  bool move_microbatch(Plan& plan);
  bool move_zero(Plan& plan);
  bool move_rows(Plan& plan);
  bool move_axes(Plan& plan);
  bool move_schedule(Plan& plan);
  bool move_layers(Plan& plan);
  bool move_recompute(Plan& plan);
  bool move_logits(Plan& plan);
  bool move_balance(Plan& plan);
  bool move_placement(Plan& plan);
  bool move_encoder_degrees(Plan& plan);
  bool move_encoder_batch(Plan& plan);
  bool move_encoder_form(Plan& plan);
  bool move_encoder_memory(Plan& plan);

  ModulePlan* pick_encoder(Plan& plan, bool is_beside);

  std::mt19937_64 random_;
};

/// Gives every pipeline stage about the same work, with the share of recomputed blocks that the plan had. False where
/// there are fewer blocks than stages.
bool spread_layers(Plan& plan);

/// What follows from the degrees: ranks, degrees of inline encoders, microbatches, layers where the pipeline's shape is
/// another. False where they do not divide.
bool refit(Plan& plan);

}  // namespace weft
