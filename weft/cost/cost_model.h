#pragma once

#include <array>
#include <functional>
#include <memory>
#include <unordered_map>

#include "weft/cost/bridge_time.h"
#include "weft/cost/cost_key.h"
#include "weft/cost/measured_times.h"
#include "weft/cost/stage_cost.h"
#include "weft/spec/draw_batch.h"

namespace weft {

/// What a plan's step costs, apart from the order in which things happen.
struct PlanCosts {
  std::vector<StagePart> parts;
  std::vector<StageCost> stages;  ///< of the llm's pipeline
  ModuleCostsOf modules;          ///< by module of the plan; they belong to the cost model

  /// An encoder beside the pipeline.
  struct Encoder {
    int32_t module = 0;
    std::vector<StageCost> stages;  ///< of its own pipeline, for a whole macro batch
    double bridge_ms = 0;           ///< shared_bridge_ms (bridge_time.h)
    double output_bytes = 0;        ///< of a macro batch's embeddings in one rank's memory, at a high load
  };
  std::vector<Encoder> encoders;
  std::vector<BridgeTime> bridges;  ///< by encoder beside the pipeline: bridge_alone
};

/// Loads that times are priced for instead of the workload's mean sample.
struct AssumedLoad {
  SampleLoad sample;  ///< the mean of some samples
  /// How many times as much the busiest of a module's data-parallel ranks takes.
  std::function<double(const Plan&, const ModulePlan&)> factor;
  /// Of the samples, those that a module has anything of, by ModuleKind. Microbatches without rows take no time, and
  /// may be so many: the others have more, and what they take counts by their share.
  std::array<double, 3> share{1, 1, 1};
};

/// Prices plans for one model, cluster and workload. Blocks are priced once for every setting that occurs, and kept.
class CostModel {
 public:
  /// Fails when the cluster lacks what the plan needs, the workload does not fit the model, or the profile is of
  /// another model or device. The plan gives model, cluster, workload and precision; plans that are priced later may
  /// differ in everything else. What the profile says of the machine is in the plan's cluster already (apply_profile).
  static Result<CostModel> create(const Plan& plan, const Profile* profile = nullptr);
  /// The same with times from elsewhere.
  static Result<CostModel> create(const Plan& plan, std::unique_ptr<BlockTimes> times);

  /// The mean batch. `costs` keeps its storage from call to call.
  void price(const Plan& plan, PlanCosts& costs);
  /// Only its encoders beside the pipeline and their bridges.
  void price_encoders(const Plan& plan, PlanCosts& costs);

  /// Blocks of a module that takes so many mean samples at once. Memory is that of a high load, not of the mean one.
  const ModuleCosts& module_costs(const Plan& plan, const ModulePlan& module, double samples);
  /// The same without links between stages and copies, which take long to find: for times of blocks.
  const ModuleCosts& block_costs(const Plan& plan, const ModulePlan& module, double samples);
  /// The same for a given load, priced anew.
  ModuleCosts module_costs(const Plan& plan, const ModulePlan& module, const Segments& segments) const;
  /// The same into costs of the module that were priced for another load. Memory is that load's, unless the plan
  /// offloads: times depend on it only there.
  void price_load(const Plan& plan, const ModulePlan& module, const Segments& segments, ModuleCosts& costs) const;

  /// Memory stays that of the workload's high load.
  void assume(AssumedLoad load) { assumed_ = std::move(load); }

  /// CostKeys::assume_ascending: the plans that are priced from now on list every module's ranks in ascending order.
  void assume_ascending_ranks() { keys_.assume_ascending(); }

  const SampleLoad& average() const { return given_->average; }
  /// What is wrong with the profile; nothing without one.
  std::vector<std::string> warnings() const;
  /// Where the times of all blocks that were priced came from; nothing without a profile.
  std::vector<BlockSource> sources() const;

 private:
  struct Given {
    Model model;
    Cluster cluster;
    Workload workload;
    SampleLoad average;
    std::array<TokenSpread, 3> spreads;  ///< by ModuleKind
  };
  CostModel() = default;
  static Result<CostModel> without_times(const Plan& plan);
  struct Placed {
    ModulePlacements placements;
    bool has_all = false;  ///< not only those of blocks
  };

  CostKey key_of(const Plan& plan, const ModulePlan& module, double samples);
  /// Without links between stages and copies.
  const ModuleCosts& blocks_of(const Plan& plan, const ModulePlan& module, const CostKey& key,
                               const ModulePlacements& placements);
  ModuleCosts price_anew(const Plan& plan, const ModulePlan& module, const BlocksKey& key) const;
  Placed& placements_of(const Plan& plan, const ModulePlan& module, const CostKey& key);
  std::array<double, 3> media_rows_per_token() const;
  /// What so many samples together hardly ever exceed.
  Segments high_load(ModuleKind kind, double samples) const;

  std::unique_ptr<Given> given_;
  std::optional<AssumedLoad> assumed_;
  std::unique_ptr<BlockTimes> times_;
  const MeasuredTimes* measured_ = nullptr;  ///< times_, where there is a profile
  CostKeys keys_;
  std::unordered_map<CostKey, ModuleCosts, CostKey::Hash> cache_;
  std::unordered_map<BlocksKey, ModuleCosts, BlocksKey::Hash> blocks_;
  std::unordered_map<CostKey, Placed, CostKey::Hash> placements_;  // by CostKey::of_placement
};

}  // namespace weft
