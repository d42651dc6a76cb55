#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "weft/comm/world.h"
#include "weft/pipeline/training_rank.h"

namespace weft::training {

/// A run of a fixture's model over a few thread ranks.
struct SmallRun {
  std::string fixture = "llama_tied";
  int64_t tp = 1, cp = 1, cp_ulysses = 1, pp = 1, vpp = 1, dp = 1, ep = 1;
  bool sequence_parallel = false;
  bool experts_over_tp = false;
  int64_t zero = 0;
  std::string schedule = "1f1b";
  int64_t microbatches = 2;
  std::vector<ModuleKind> frozen;
  /// Where the vision encoder is beside the pipeline: on all of the llm's ranks or, with pp, on ranks of its own.
  struct Vision {
    int64_t tp = 1, pp = 0, dp = 1;
    int64_t zero = 0;
  };
  std::optional<Vision> vision;
  PrecisionPlan precision = {.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
  double buckets_mb = 64;

  int64_t world_size() const { return tp * cp * pp * dp + (vision ? vision->tp * vision->pp * vision->dp : 0); }
  std::string text() const;
};
void PrintTo(const SmallRun& run, std::ostream* out);

std::filesystem::path fixture_folder(const std::string& fixture);
Plan plan_of(const SmallRun& run);
/// Gives a plan a workload and a cluster that documents can keep.
void add_surroundings(Plan& plan);

/// Runs the body on every rank of a plan's world; what goes wrong there is an exception.
void on_ranks(int64_t size, const std::function<void(World&)>& body);

/// This rank of the plan with fresh weights.
std::unique_ptr<TrainingRank> make_rank(World& world, const Plan& plan, uint64_t seed);

/// One step over the batch that belongs to its number. The loss.
double take_step(TrainingRank& rank, const Plan& plan, int64_t step);

/// All that a rank keeps from step to step, by name, as copies: whole values, and the states that it owns.
std::vector<std::pair<std::string, at::Tensor>> state_of(TrainingRank& rank);

/// Not one bit may differ.
void expect_same(const std::vector<std::pair<std::string, at::Tensor>>& found,
                 const std::vector<std::pair<std::string, at::Tensor>>& expected);

}  // namespace weft::training
