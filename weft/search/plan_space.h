#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/base/document.h"
#include "weft/exchange/export.h"
#include "weft/plan/plan.h"
#include "weft/schedule/generators.h"

namespace weft {

/// Samples of the llm's microbatch that an encoder takes at once, in microbatches, and chunks of a pipeline rank, at
/// most.
inline constexpr int64_t kMostScale = 64;
inline constexpr int64_t kMostChunks = 16;

/// What one setting may be: everything that is possible, or what was pinned.
struct Allowed {
  std::vector<int64_t> values;  ///< empty: no list
  int64_t at_least = 1;
  int64_t at_most = INT64_MAX;

  bool contains(int64_t value) const;
  bool operator==(const Allowed&) const = default;
};

/// How an encoder may be placed.
struct EncoderSpace {
  bool allows_inline = true;
  bool allows_colocated = true;
  bool allows_disjoint = true;
  bool allows_partial = true;
  bool allows_before = true;
  bool allows_fill = true;
  bool allows_on_demand = false;
  Allowed tp;
  Allowed mbs_scale{.values = {1, 2, 4}};
  Allowed ranks;   ///< disjoint
  Allowed stages;  ///< partial
  std::optional<bool> recompute_from_inputs;
  Allowed mbs_parts{.values = {1}};               ///< what mbs_scale is divided by
  Allowed cp{.values = {1}};                      ///< beside the pipeline
  std::optional<bool> sequence_parallel = false;  ///< beside the pipeline
  std::optional<Allowed> zero;                    ///< beside the pipeline; nothing: the usual stage
  std::set<std::string> given = {};               ///< settings that a search file names

  bool operator==(const EncoderSpace&) const = default;
};

/// What layers of the pipeline may recompute.
struct RecomputeSpace {
  /// The same for all stages, instead of a choice for each.
  struct Everywhere {
    int64_t full = 0;        ///< of the llm, the first layers of a stage, or all where it has fewer
    bool attention = false;  ///< of all layers of the llm
    bool encoders = false;   ///< all layers of encoders in the pipeline
  };

  bool allows_full = true;
  bool allows_selective = true;  ///< where a rank has one chunk
  bool allows_logits = false;    ///< of the loss: tried when plans are improved
  std::optional<Everywhere> everywhere = {};
};

/// The plans that a search considers, at a fixed global batch. docs/manual/plan.md says what is in it.
/// tp divides the devices of a node, cp_ulysses cp, ep the experts and dp·cp; pp is at most the number of layers, and
/// vpp above 1 goes with interleaved_1f1b.
struct PlanSpace : PerDegree<Allowed> {
  PlanSpace() {
    cp.values = {1, 2, 4, 8};
    vpp.values = {1, 2, 3, 4};
  }

  Allowed mbs{.values = {1, 2, 4, 8}};
  Allowed zero{.values = {0, 1, 2, 3}, .at_least = 0};
  std::optional<bool> zero_keep_gathered;     ///< both with ZeRO 3
  std::optional<bool> sequence_parallel;      ///< both where tp > 1
  std::optional<bool> stages_are_neighbours;  ///< both where it matters
  std::optional<bool> experts_over_tp;        ///< both where rows are divided
  std::vector<ScheduleName> schedules = {ScheduleName::k1f1b, ScheduleName::kInterleaved1f1b, ScheduleName::kZbH1,
                                         ScheduleName::kZbV};
  RecomputeSpace recompute;
  /// Where drawn batches decide; the mean batch has nothing to reassign.
  std::vector<Balance> balances = {Balance::kNone, Balance::kEncoder, Balance::kLlm, Balance::kBoth};
  std::map<ModuleKind, EncoderSpace> encoders = {{ModuleKind::kVision, {}}, {ModuleKind::kAudio, {}}};
  bool allows_strategies = true;                  ///< of operators, other than the usual ones
  std::optional<std::vector<ModuleKind>> frozen;  ///< instead of the workload's
  std::optional<Target> target;                   ///< only plans that it can express
  std::set<std::string> given = {};               ///< settings that a search file names, the llm's among them
  /// Pairs of stage and microbatch of a schedule, at most. With more, one makespan takes seconds and its graph
  /// gigabytes.
  int64_t most_stage_microbatches = 1 << 18;
};

/// A search file: {"llm": {"tp": 8, "pp": [1, 2, 4], "zero": {"at_most": 1}, ...}, "schedule": ["1f1b"], "mbs": 1,
/// "recompute": ["full"], "balance": ["none"], "frozen": ["vision"], "encoders": {"placement": ["inline"], "form":
/// ["before"], "tp": 1, "mbs_scale": [1, 2]}, "vision": {...}, "audio": {...}, "strategies": false}. A setting is a
/// number, a list, or an object with at_least and at_most; what vision and audio say comes before what encoders says.
/// Unknown keys are rejected.
Result<PlanSpace> read_plan_space(const Document& document);

/// What lies around a space: all settings that nobody pinned may be what training can do, too.
PlanSpace widened(const PlanSpace& space);

/// Without settings that a model cannot have: a user's own program has whole rows between its blocks, recomputes whole
/// layers, and has a pipeline only where it marks its layers. Fails where nothing else is allowed.
Result<PlanSpace> fitted(PlanSpace space, const Model& model);

/// A part of a search file, which was read before, about a module that the model does not have.
std::optional<Error> find_foreign_module(const Document& document, const Model& model);

}  // namespace weft
