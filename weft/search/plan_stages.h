#pragma once

#include <array>
#include <limits>
#include <unordered_map>
#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/search/candidate.h"
#include "weft/search/chain_solver.h"
#include "weft/search/plan_space.h"
#include "weft/search/price_table.h"

namespace weft {

/// What encoders beside the pipeline hold on a pipeline rank while it runs.
struct BesideMemory {
  double static_gib = 0;  ///< with buffers
  double held_gib = 0;    ///< activations and embeddings
  double moment_gib = 0;  ///< more of it while one of their own actions runs
};

/// The most modules that a pipeline has blocks of.
inline constexpr size_t kMostPipelineModules = kMostEncoders + 1;
/// By module in the pipeline.
using StageRecomputes = std::array<RecomputeCounts, kMostPipelineModules>;

/// What the stages of one pipeline take and hold by themselves, for all candidates that have it.
struct StagePrices {
  struct RunKey {
    int32_t stage = 0, first = 0, count = 0;
    StageRecomputes recomputes;

    size_t hash() const;
    bool operator==(const RunKey&) const = default;
  };
  /// A module's blocks in a stage. Runs of several modules are many combinations of few parts.
  struct PartKey {
    int32_t module = 0, first = 0, count = 0;
    RecomputeCounts recompute;
    bool has_entry = false, has_exit = false;
    bool has_copied_table = false, sums_table = false;

    size_t hash() const;
    bool operator==(const PartKey&) const = default;
  };

  PriceTable<RunKey, StageFigures> runs;
  PriceTable<PartKey, StageCost> parts;
};

/// The stages of a plan's pipeline, priced as the plan simulator prices them: chains of these options take as long as
/// the simulator says, and fit where it says so.
class PlanStages : public StageSource {
 public:
  struct Beside {
    std::vector<BesideMemory> memory;  ///< by pipeline rank
    std::vector<double> update_ms;     ///< by pipeline rank: what their reduction and update add
    std::vector<double> backward_ms;   ///< by pipeline rank: what runs between the pipeline and the update
    double entry_transfer_ms = 0;      ///< bridges_hold_up_ms, at the stage at which the llm begins
  };

  /// The plan is filled with a candidate; `costs` are its modules'; `prices` are of its pipeline. What is handed in
  /// must outlive this.
  PlanStages(const Plan& plan, const ModuleCostsOf& costs, const SolverShape& shape, StagePrices& prices, Beside beside,
             const RecomputeSpace& recompute, bool has_memory_limit);

  int32_t num_stages() const override { return num_stages_; }
  int32_t num_blocks() const override { return num_blocks_; }
  double lead_ms(int32_t stage, int32_t first) const override;
  std::optional<Error> list(int32_t stage, int32_t first, int32_t count, std::vector<StageOption>& options) override;

  /// A stage with a run of blocks of which none is recomputed, whether that fits or not: nothing is quicker.
  StageTimes plain_times(int32_t stage, int32_t first, int32_t count) const;
  /// Whether stages can take all blocks however much they recompute, one chunk a rank: false when nothing fits.
  bool can_fit() const;
  /// Leaves the reduction of gradients out of the stages' times: for bounds where something hides it.
  void ignore_reductions(bool ignores) { ignores_reductions_ = ignores; }
  /// Of runs of several modules' blocks, with several stages a rank, only some numbers of recomputed layers are
  /// offered: to move blocks freely, most of their products are not needed.
  void offer_few() { offers_few_ = true; }
  /// From now on, ways to fill a stage that keep it busy for longer than a makespan of so long are not offered.
  void look_below(double makespan_ms);
  /// What each pipeline rank has for its stages; nothing where memory is not limited.
  const std::vector<double>& limits_gib() const { return limits_gib_; }
  /// Puts the layers and recomputation of one option a stage into a plan.
  void apply(std::span<const StageOption> options, Plan& plan);

 private:
  static constexpr size_t kMostModules = kMostPipelineModules;
  using Recomputes = StageRecomputes;

  /// A module's layers in the chain of blocks.
  struct Span {
    int32_t module = 0;  ///< in the plan
    int32_t begin = 0;
    int32_t end = 0;
    int32_t uniform_from = 0;  ///< the first block from which on equal runs pass on as much as others
    bool is_uniform = false;
    bool saves_selectively = false;
    BackwardNeeds backward;
  };
  /// A run of blocks on a stage.
  struct Run {
    int32_t stage, first, count;
    int32_t end() const { return first + count; }
  };
  struct Priced {
    StageFigures figures;
    Recomputes recomputes;
  };

  const std::vector<Priced>& priced(const Run& run);
  Run with_equal_price(Run run) const;
  bool begins_llm(const Run& run) const;
  StageFigures price(const Run& run, const Recomputes& recomputes) const;
  StageFigures price_alone(const Run& run, const Recomputes& recomputes) const;
  StageCost price_alone(const StagePrices::PartKey& key, int32_t stage) const;
  class Knapsack;
  void excesses(int32_t stage, const StageFigures& figures, std::vector<double>& excess) const;
  double excess_gib(int32_t stage, const StageFigures& figures) const;
  bool fits(int32_t stage, const StageFigures& figures) const { return excess_gib(stage, figures) <= 0; }
  bool fits_somehow(const Run& run) const;
  Recomputes recomputed_everywhere(const Run& run) const;
  void find_least(const Run& run, std::vector<Priced>& found) const;
  std::array<int64_t, kMostModules> fewest_full(const Run& run, const StageFigures& plain,
                                                const std::vector<size_t>& open) const;
  void find_pareto(const Run& run, std::vector<Priced>& found) const;
  int64_t layers_of(const Span& span, const Run& run) const;

  const Plan& plan_;
  const ModuleCostsOf& costs_;
  const SolverShape& shape_;
  StagePrices& prices_;
  Beside beside_;
  RecomputeSpace recompute_;
  bool has_memory_limit_;
  bool shares_ranks_;
  bool splits_;
  bool has_inline_ = false;
  bool ignores_reductions_ = false;
  bool offers_few_ = false;
  double most_ms_ = std::numeric_limits<double>::infinity();  ///< of a stage, for one microbatch
  int32_t num_stages_;
  int32_t num_blocks_ = 0;
  std::vector<Span> spans_;
  std::vector<double> lead_ms_;  // by block: one microbatch through all before it
  std::vector<double> limits_gib_;
  std::vector<char> is_first_of_rank_;  // by stage
  std::unordered_map<uint64_t, std::vector<Priced>> priced_;
};

/// For `pp` pipeline ranks without encoders beside them.
PlanStages::Beside nothing_beside(int64_t pp);

}  // namespace weft
