#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/cost/apply_profile.h"
#include "weft/cost/measured_times.h"
#include "weft/plan/plan.h"
#include "weft/simulate/step_spread.h"

namespace weft {

/// Where the step's time goes on one rank. The parts add up to the step.
struct TimeSplit {
  double compute_ms = 0;
  double recompute_ms = 0;
  double encoder_ms = 0;  ///< of encoders beside the pipeline
  double tp_ms = 0;       ///< communication as far as it holds compute up, here and below
  double cp_ms = 0;
  double ep_ms = 0;
  double zero_ms = 0;
  double offload_ms = 0;
  double host_ms = 0;  ///< around the actions of a pipeline
  double update_ms = 0;
  double dp_ms = 0;        ///< the step would end so much sooner without gradient reduction
  double transfer_ms = 0;  ///< the same without transfers between stages
  double bubble_ms = 0;    ///< idle for other reasons
};

/// What a rank holds when it holds most, in bytes.
struct MemorySplit {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  double workspace = 0;  ///< of the action that runs
  double buffers = 0;    ///< for communication
  double rounding = 0;   ///< of the allocator
  double reserved = 0;   ///< by driver, context and libraries

  double total() const {
    return weights + gradients + optimizer + activations + workspace + buffers + rounding + reserved;
  }
};

/// The parts of a split, for tables, documents and sentences.
struct TimePart {
  const char* key;
  const char* heading;
  const char* words;
  double TimeSplit::*value;
};
inline constexpr std::array<TimePart, 13> kTimeParts = {{
    {"compute_ms", "compute", "compute", &TimeSplit::compute_ms},
    {"recompute_ms", "recompute", "recomputation", &TimeSplit::recompute_ms},
    {"encoder_ms", "encoders", "encoders", &TimeSplit::encoder_ms},
    {"tp_ms", "tp", "tensor-parallel communication", &TimeSplit::tp_ms},
    {"cp_ms", "cp", "context-parallel communication", &TimeSplit::cp_ms},
    {"ep_ms", "ep", "expert communication", &TimeSplit::ep_ms},
    {"zero_ms", "zero", "ZeRO communication", &TimeSplit::zero_ms},
    {"offload_ms", "offload", "offload", &TimeSplit::offload_ms},
    {"host_ms", "host", "the host", &TimeSplit::host_ms},
    {"update_ms", "update", "the update", &TimeSplit::update_ms},
    {"dp_ms", "dp", "gradient reduction", &TimeSplit::dp_ms},
    {"transfer_ms", "transfers", "transfers between stages", &TimeSplit::transfer_ms},
    {"bubble_ms", "bubble", "idle ranks", &TimeSplit::bubble_ms},
}};

struct MemoryPart {
  const char* key;
  const char* heading;
  double MemorySplit::*value;
};
inline constexpr std::array<MemoryPart, 8> kMemoryParts = {{
    {"weights_gib", "weights", &MemorySplit::weights},
    {"gradients_gib", "gradients", &MemorySplit::gradients},
    {"optimizer_gib", "optimizer", &MemorySplit::optimizer},
    {"activations_gib", "activations", &MemorySplit::activations},
    {"workspace_gib", "workspace", &MemorySplit::workspace},
    {"buffers_gib", "buffers", &MemorySplit::buffers},
    {"rounding_gib", "rounding", &MemorySplit::rounding},
    {"reserved_gib", "reserved", &MemorySplit::reserved},
}};
const MemoryPart& largest_part(const MemorySplit& memory);

/// One row of the schedule, which stands for all ranks that do the same.
struct ScheduleRowReport {
  std::string name;  ///< "pipeline rank 2", "encoder row 4"
  TimeSplit time;
  MemorySplit memory;
};

/// What a report took from a profile.
struct ProfileUse {
  std::string source;
  std::string date;
  std::vector<BlockSource> blocks;
  MachineSource machine;
};

/// What a plan's step comes to.
struct PlanReport {
  double step_time_ms = 0;  ///< of the mean batch, or the mean over drawn batches
  double bubble_fraction = 0;
  double throughput_samples_per_s = 0;
  double tokens_per_s_per_device = 0;  ///< the llm's tokens
  double model_flops_utilization = 0;
  std::string calibrated_to;  ///< what the cluster's efficiency, or the profile, was measured on; else nothing
  double mean_batch_step_time_ms = 0;

  /// Drawn batches: none, or their number and how their step times spread.
  int64_t batches = 0;
  StepSpread spread;

  std::vector<ScheduleRowReport> rows;
  double memory_limit_bytes = 0;
  std::optional<ProfileUse> profile;
  std::vector<std::string> warnings;

  const ScheduleRowReport& fullest() const;
  double peak_memory_bytes() const { return fullest().memory.total(); }
  bool fits() const { return peak_memory_bytes() <= memory_limit_bytes; }
};

/// As a plan carries it.
Prediction prediction_of(const PlanReport& report);

}  // namespace weft
