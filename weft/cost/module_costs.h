#pragma once

#include <array>
#include <vector>

#include "weft/cost/block_memory.h"
#include "weft/cost/block_time.h"

namespace weft {

/// Everything about one kind of block on one rank, for one microbatch.
struct BlockCost {
  BlockTime time;
  BlockMemory memory;
  LocalParameters parameters;
  LocalParameters gradients;   ///< of them, those with gradients if it is trained: adapters' alone where it has some
  int64_t largest_weight = 0;  ///< elements of the largest of these on this rank
  int64_t num_weights = 0;
  int64_t copied = 0;             ///< of these, elements whose gradients tensor-parallel ranks sum (summed_over_tp)
  int64_t copied_of_experts = 0;  ///< the same of experts that ranks share out, which have an optimizer of their own
  int64_t copied_keys = 0;        ///< those of key and value heads that `key_sharers` of them have
  int64_t key_sharers = 1;
};

/// A module's blocks as one rank of a plan runs them on one microbatch.
struct ModuleCosts {
  BlockSetting setting;
  BlockCost entry;
  std::vector<BlockCost> distinct_layers;  ///< by Module::distinct_layers
  BlockCost exit;
  BlockTime output;                              ///< of an encoder: what brings its rows to the llm
  int64_t table_elements = 0;                    ///< of the entry's tables on this rank, which a tied head shares
  GroupLink gradient_link;                       ///< over which gradients are summed
  GroupLink expert_gradient_link;                ///< the same for experts
  GroupLink pipeline_link;                       ///< to the next stage: of one rank
  double boundary_bytes = 0;                     ///< a rank's part of what passes from one layer to the next
  double output_bytes = 0;                       ///< of what the module hands on
  std::array<double, 3> media_rows_per_token{};  ///< of the llm, by the encoder's ModuleKind, in the mean
  double output_memory_bytes = 0;                ///< of the same in a rank's memory, at a high load
};

/// `segments` are what one of the module's data-parallel ranks takes at once.
ModuleCosts price_module(const Plan& plan, const ModulePlan& module, const ModulePlacements& placements,
                         const BlockTimes& times, const Segments& segments);

/// The same in two parts. Blocks depend on their setting and load alone, links on where the module lies.
ModuleCosts price_blocks(const Plan& plan, const ModulePlan& module, const BlockSetting& setting,
                         const BlockTimes& times, const Segments& segments);
void set_links(const Cluster& cluster, const ModulePlan& module, const ModulePlacements& placements,
               ModuleCosts& costs);

/// Puts the times of another load into costs of the same module and setting, and what it passes on. Memory stays.
void price_load(const Plan& plan, const ModulePlan& module, const BlockTimes& times, const Segments& segments,
                ModuleCosts& costs);

/// The link that one rank has to a rank of the next pipeline stage.
GroupLink pipeline_link(const Cluster& cluster, const ModulePlan& module, const ModulePlacements& placements);

}  // namespace weft
