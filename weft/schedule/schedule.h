#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/schedule/action.h"

namespace weft {

/// An encoder beside the pipeline, on some of its ranks or on ranks of its own: who runs it, and which microbatches
/// need which of its macro batches.
struct ScheduledEncoder {
  std::string name;
  int32_t num_macro_batches = 0;
  bool is_trained = true;  ///< a frozen one has no EB
  /// EB runs the forward again, so that activations are not kept from EF to EB.
  bool recompute_from_inputs = false;
  /// Most macro batches alive at once, 0 for no bound. Alive is one from its EF until its EB; until the last microbatch
  /// that needs it has run F of the entry stage when only its output is kept (frozen, or recomputed). An EF that would
  /// exceed it waits.
  int32_t live_macro_batches = 0;
  /// Stages of the encoder's own pipeline. Group g is stage g % num_stages of replica g / num_stages.
  int32_t num_stages = 1;
  /// The ranks that run it. Those of one group (the encoder's tp and cp, and what its data parallelism gathers for
  /// every action) meet in every action; groups are independent.
  std::vector<std::vector<int32_t>> groups;
  /// For each microbatch: its embeddings come from the macro batches first_macro ≤ k < end_macro. Equal when it has
  /// none.
  std::vector<int32_t> first_macro;
  std::vector<int32_t> end_macro;

  int32_t num_groups() const { return static_cast<int32_t>(groups.size()); }
  bool is_first_stage(int32_t group) const { return group % num_stages == 0; }
  bool is_last_stage(int32_t group) const { return group % num_stages == num_stages - 1; }
  /// Whether activations stay from EF to EB.
  bool keeps_activations() const { return is_trained && !recompute_from_inputs; }

  bool operator==(const ScheduledEncoder&) const = default;
};

/// What every rank of one pipeline does in a step, in order: one row per rank. Compute-only as generated, or lowered,
/// with transfers between the ranks.
struct Schedule {
  int32_t num_microbatches = 0;
  std::vector<int32_t> rank_of_stage;
  std::vector<std::vector<Action>> rows;
  std::vector<ScheduledEncoder> encoders;
  int32_t entry_stage = 0;  ///< where the llm begins and takes encoders' rows in: behind those of inline encoders

  int32_t num_ranks() const { return static_cast<int32_t>(rows.size()); }
  int32_t num_stages() const { return static_cast<int32_t>(rank_of_stage.size()); }
  int32_t entry_rank() const { return rank_of_stage[static_cast<size_t>(entry_stage)]; }
  /// Whether a stage's output goes to another rank.
  bool crosses_ranks(int32_t stage) const {
    return rank_of_stage[static_cast<size_t>(stage)] != rank_of_stage[static_cast<size_t>(stage) + 1];
  }

  bool operator==(const Schedule&) const = default;
};

/// How chunks are laid over ranks. Loop: rank r, chunk c is stage c·p + r. V (two chunks): chunk 0 is stage r, chunk 1
/// is stage 2p−1−r.
enum class Placement { kLoop, kV };

struct StagePlace {
  int32_t rank = 0;
  int32_t chunk = 0;
};
StagePlace place_of_stage(Placement placement, int32_t pp, int32_t stage);
int32_t stage_at(Placement placement, int32_t pp, const StagePlace& place);

/// The rank of each of pp·vpp stages.
std::vector<int32_t> place_stages(Placement placement, int32_t pp, int32_t vpp);

/// The stages that a rank holds, in the order of its chunks.
std::vector<int32_t> stages_of_rank(const Schedule& schedule, int32_t rank);

/// By rank, the encoder's group that it is in: −1 where the encoder does not run.
std::vector<int32_t> groups_of_ranks(const ScheduledEncoder& encoder, int32_t num_ranks);

/// Total number of actions in all rows.
size_t num_actions(const Schedule& schedule);

}  // namespace weft
