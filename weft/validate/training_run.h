#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/plan/plan.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// Which activations the layers of a run recomputed: attention alone, every second layer, every layer.
enum class Recomputation { kNone, kSelective, kHalf, kFull };

/// A training run that somebody measured: what it was, and how long a step took.
struct TrainingRun {
  std::string name;            ///< for messages and tables
  std::string source;          ///< file and line
  std::optional<Model> model;  ///< where it is not a GPT of the sizes below
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t num_layers = 0;
  int64_t sequence_length = 0;
  int64_t patches_per_image = 0;  ///< of the one image that a sample has, whose encoder is inline
  int64_t vocabulary = 51'200;
  int64_t num_devices = 0;
  int64_t global_batch = 0;
  int64_t micro_batch = 0;
  int64_t tp = 1, cp = 1, ep = 1, dp = 1, pp = 1, vpp = 1;
  int64_t zero = 0;
  bool sequence_parallel = false;
  bool fused_attention = false;
  bool overlaps_dp = false;  ///< gathers, scatters and reductions run beside compute
  bool overlaps_tp = true;   ///< communication of input gradients runs behind weight gradients
  double buckets_mb = 64;    ///< of gradients that are reduced together
  Recomputation recompute = Recomputation::kFull;
  double measured_ms = 0;
};

/// The plan that such a run followed, on nodes of the cluster's kind: 1F1B, or interleaved where vpp > 1; layers spread
/// evenly; neither embeddings tied nor attention fused unless the run says so.
Result<Plan> plan_of(const TrainingRun& run, const Cluster& cluster);

/// A run made ready to be predicted again and again for other efficiencies.
struct PreparedRun {
  TrainingRun run;
  Plan plan;
  Schedule schedule;
  bool is_overfull = false;  ///< needs more than its devices' memory, as plans are priced
  /// Nothing runs beside compute in such a run. An allocator that finds no room waits for the device, gives back what
  /// it has kept, and asks the driver again, in every block: no gather can begin before the block in front has ended.
  bool waits_where_overfull = false;
};
Result<std::vector<PreparedRun>> prepare(const std::vector<TrainingRun>& runs, const Cluster& cluster);

/// The step time if the cluster had this efficiency.
double predict_ms(const PreparedRun& run, const Efficiency& efficiency);

}  // namespace weft
