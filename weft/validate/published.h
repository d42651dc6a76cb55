#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "weft/validate/training_run.h"

namespace weft {

/// Memory of one device that a paper computed, in GiB, and ours for the same parts.
struct PublishedMemory {
  std::string name;
  TrainingRun run;  ///< whose memory it is
  double layer_gib = 0;
  double layer_gib_selective_sequence_parallel = 0;
  double state_gib = 0;
};

/// Step times and memory from a paper.
struct Published {
  std::string source;
  std::string cluster;            ///< on which they were taken, by its scenario's name
  std::vector<TrainingRun> runs;  ///< two a model: full recomputation; selective with sequence parallelism
  std::vector<PublishedMemory> memory;
};

Result<Published> read_published(const std::filesystem::path& path);

/// The parts of our memory model that the paper's closed forms count, in GiB.
struct MatchingMemory {
  double layer_gib = 0;
  double layer_gib_selective_sequence_parallel = 0;
  double state_gib = 0;
  double full_prediction_gib = 0;  ///< everything, without recomputation
  double full_prediction_gib_selective_sequence_parallel = 0;
};
Result<MatchingMemory> matching_memory(const PublishedMemory& published, const Cluster& cluster);

}  // namespace weft
