#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/json.h"
#include "weft/plan/degrees.h"
#include "weft/plan/module_strategy.h"
#include "weft/plan/recompute.h"
#include "weft/schedule/encoder_forms.h"
#include "weft/schedule/explicit_rows.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model.h"
#include "weft/spec/workload.h"

namespace weft {

/// Where a module lives. Base is the llm; the others are encoders: the first stages of the llm's pipeline, all of its
/// ranks with degrees of their own, ranks of their own, or some of its ranks.
enum class ModulePlacement { kBase, kInline, kColocated, kDisjoint, kPartial };

/// Which samples are reassigned between data-parallel ranks before a step.
enum class Balance { kNone, kEncoder, kLlm, kBoth };
/// In the order of the values.
std::span<const std::string> balance_names();
const std::string& name_of(Balance balance);

/// The parallel settings of one module.
struct ModulePlan : Degrees {
  ModuleKind kind = ModuleKind::kLlm;
  ModulePlacement placement = ModulePlacement::kBase;
  std::vector<int64_t> ranks;                     ///< in mesh order
  std::vector<std::string> axis_order;            ///< innermost first
  std::vector<std::vector<int64_t>> layers;       ///< [rank][chunk] blocks
  std::vector<std::vector<Recompute>> recompute;  ///< [rank][chunk]; nothing: all blocks keep everything
  ModuleStrategy strategy;                        ///< the model has it already (apply_strategies)
  bool recompute_logits = false;  ///< of the llm: the loss's are made again, some rows at a time, instead of kept
  // Encoders only.
  int64_t mbs_scale = 1, mbs_parts = 1;  ///< macro batches are mbs · mbs_scale / mbs_parts samples a rank
  EncoderForm form = EncoderForm::kBefore;
  int64_t live_macro_batches = 0;                       ///< with fill and stream: how many may be alive at once
  std::map<int64_t, std::vector<std::string>> actions;  ///< with fill: the order that was planned, by pipeline rank
  bool recompute_from_inputs = false;

  Degrees& degrees() { return *this; }
  const Degrees& degrees() const { return *this; }
  /// What the blocks of a chunk recompute.
  std::span<const RecomputeRun> recompute_of(size_t rank, size_t chunk) const {
    return recompute.empty() ? std::span<const RecomputeRun>() : recompute[rank][chunk].runs();
  }
  /// What the block behind the last layer does.
  BlockRecompute exit_recompute() const { return recompute_logits ? BlockRecompute::kLogits : BlockRecompute::kKeep; }
  bool is_encoder() const { return kind != ModuleKind::kLlm; }
  /// Whether its blocks lie in the llm's pipeline, instead of beside it.
  bool is_in_pipeline() const { return !is_encoder() || placement == ModulePlacement::kInline; }
};

struct SchedulePlan {
  std::string name = "1f1b";
  int64_t mbs = 1;  ///< samples of each llm data-parallel rank in a microbatch
  int64_t microbatches = 1;
  std::optional<ExplicitRows> rows;  ///< of the llm's pipeline, where the name is explicit
};

/// Weights, by a pattern of the names that weight files give them ('*' is any letters, '?' one), and whether they are
/// trained.
struct TrainRule {
  std::string weights;
  bool train = true;

  bool operator==(const TrainRule&) const = default;
};

struct PrecisionPlan {
  Precision compute = Precision::kBf16;
  Precision master = Precision::kFp32;
  Precision reduce = Precision::kFp32;
};

/// What lies in the host's memory instead of the device's, as shares.
struct OffloadPlan {
  double optimizer = 0;    ///< of the optimizer's states
  double activations = 0;  ///< of what is kept from forward to backward

  bool is_empty() const { return optimizer == 0 && activations == 0; }
};

struct Prediction {
  double step_time_ms = 0;
  double bubble_fraction = 0;
  std::vector<double> peak_memory_gib;
  double throughput_samples_per_s = 0;
};

/// The document that is searched, checked, simulated and executed. It carries model, cluster and workload, so it stands
/// alone.
struct Plan {
  Model model;
  Cluster cluster;
  Workload workload;
  int64_t world_size = 1;
  std::vector<ModulePlan> modules;  ///< in flow order, the llm last
  SchedulePlan schedule;
  bool idle_ranks = false;  ///< ranks that no module uses are meant to be idle
  /// How many batches drawn from the workload's distributions the step time is the mean of; 0 for one mean batch.
  /// Nothing: the simulator decides.
  std::optional<int64_t> batches;
  int64_t batch_seed = 0;
  PrecisionPlan precision;
  double buckets_mb = 64;
  bool overlap_dp = true;
  bool overlap_tp = false;  ///< training does not; plans of other systems' runs may say so
  Balance balance = Balance::kNone;
  OffloadPlan offload;
  /// On top of the modules that the workload freezes; later rules win.
  std::vector<TrainRule> trainable;
  Prediction predicted;

  const ModulePlan* find(ModuleKind kind) const;
  const ModulePlan& llm() const;
};

/// The version that this program writes, and the newest that it reads.
inline constexpr int64_t kPlanVersion = 2;

/// Identifies a model, cluster or workload inside a plan: the 64-bit FNV-1a hash of its JSON, in hexadecimal.
std::string hash_of(const Json& document);

}  // namespace weft
