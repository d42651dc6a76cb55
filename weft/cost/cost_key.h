#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "weft/cost/block_setting.h"
#include "weft/plan/plan.h"

namespace weft {

/// Everything that the costs of a module's blocks depend on, for one model, cluster and workload. Keys of one CostKeys
/// are equal exactly when all of it is.
struct CostKey {
  ModuleKind kind = ModuleKind::kLlm;
  Precision precision = Precision::kBf16;
  bool sequence_parallel = false;
  bool experts_over_tp = false;
  bool overlap_tp = false;
  bool places_whole_rows = false;
  bool gives_media_rows = false;
  bool divides_parts = false;
  int32_t rank_list = 0;    ///< the number of a list that is not consecutive; 0 for those that are
  uint64_t axis_order = 0;  ///< the letters of its names
  int64_t first_rank = 0;
  int64_t num_ranks = 0;
  int64_t tp = 1, cp = 1, cp_ulysses = 1, ep = 1, pp = 1, dp = 1;
  double samples = 0;  ///< at once, which memory has to do for
  double taken = 0;    ///< the same, which times are of

  bool operator==(const CostKey&) const = default;
  /// Of all this only what says where the module's groups lie.
  CostKey of_placement() const;

  struct Hash {
    size_t operator()(const CostKey& key) const;
  };
};

/// What the costs of a module's blocks depend on, links aside that no block uses: modules that lie elsewhere, or are
/// copied more often, often agree in it.
struct BlocksKey {
  ModuleKind kind = ModuleKind::kLlm;
  BlockSetting setting;
  double samples = 0;  ///< CostKey's
  double taken = 0;

  bool operator==(const BlocksKey&) const = default;

  struct Hash {
    size_t operator()(const BlocksKey& key) const;
  };
};

/// Makes keys. A list of ranks in an order of their own, or with gaps, gets a number when it is first seen; after that
/// nothing is allocated for it.
class CostKeys {
 public:
  /// From now on every module's ranks ascend, so that ends and number tell whether they are consecutive: whole lists
  /// are not looked at for every key.
  void assume_ascending() { ascend_ = true; }

  /// The plan is legal. The module takes so many samples at once.
  CostKey key_of(const Plan& plan, const ModulePlan& module, double samples, double taken);

 private:
  struct ListHash {
    size_t operator()(const std::vector<int64_t>& ranks) const;
  };
  int32_t number_of(const std::vector<int64_t>& ranks);

  bool ascend_ = false;
  std::unordered_map<std::vector<int64_t>, int32_t, ListHash> lists_;
};

}  // namespace weft
