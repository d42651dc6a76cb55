#pragma once

#include <optional>
#include <vector>

#include "weft/meaning/bucket_layout.h"
#include "weft/meaning/op_share.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/meaning/zero_rules.h"

namespace weft {

/// A weight of a stage, and what decides about its bucket.
struct StageWeight {
  LocalWeight weight;
  size_t block = 0;
  bool is_trained = true;
  bool is_of_table = false;       ///< of the llm's embedding, which a head may be tied to
  bool is_alone = false;          ///< a tied table, whose copies lie in equal buckets
  bool has_divided_rows = false;  ///< sequence parallelism divides the rows between the blocks of its module
  bool is_shared_out = false;     ///< of experts that other ranks have others of
  /// In a norm of gradients: of copies that ranks have, one is. Of copied key heads in a weight, ranks may differ.
  bool is_counted = true;
  int32_t module = 0;  ///< of the plan
};

/// An embedding, a layer, a head.
struct StageBlockRules {
  bool has_backward = true;        ///< not where no weight of it or before it is trained
  std::optional<size_t> borrowed;  ///< the block whose weights it uses, too: the embedding that a head is tied to
};

/// The weights of a stage that one group of ranks has the same of.
struct StageBuckets {
  int64_t num_ranks = 1;
  ZeroRules rules;
  std::vector<BucketLayout> layouts;
  std::vector<size_t> weights;                ///< of the stage, in the order in which slots count them
  std::vector<std::vector<int64_t>> bundles;  ///< by block: of buckets that it uses
  std::optional<size_t> table;                ///< the bucket of a tied table that lies alone
};

/// One stage as a rank has it. The plan must outlive it.
class StageContent {
 public:
  StageContent(const Plan& plan, int32_t stage, int64_t tp_rank, const TiedTable& table)
      : plan_(&plan), trainable_(plan), stage_(stage), tp_rank_(tp_rank), table_(table) {}

  void add(const StagePart& part);

  int32_t stage() const { return stage_; }
  const std::vector<StagePart>& parts() const { return parts_; }
  const std::vector<StageBlockRules>& blocks() const { return blocks_; }
  /// In the order of a forward.
  const std::vector<StageWeight>& weights() const { return weights_; }
  /// Of a block's trained weights, the elements that tensor-parallel ranks have the same of and sum the gradients of.
  struct Copies {
    int64_t over_tp = 0;     ///< all of them do
    int64_t of_keys = 0;     ///< those with copies of one key head do
    int64_t of_experts = 0;  ///< all of them do, of experts that ranks share out
  };
  /// By block.
  std::vector<Copies> copies() const;
  /// Of experts that other ranks have others of, or of all other weights. `module` is the one whose pipeline it is.
  StageBuckets buckets(const ModulePlan& module, bool of_experts) const;

 private:
  void add_block(const ModulePlan& module, int64_t place, bool has_table_alone);
  void add_op(const Op& op, const ModulePlan& module, bool is_alone);

  const Plan* plan_;
  Trainable trainable_;
  int32_t stage_;
  int64_t tp_rank_;
  TiedTable table_;
  std::vector<StagePart> parts_;
  std::vector<StageBlockRules> blocks_;
  std::vector<StageWeight> weights_;
};

/// The stages of a rank in one pipeline, the llm's or that of an encoder beside it, in the order of chunks. `place`
/// is the rank's in that module.
std::vector<StageContent> stages_of(const Plan& plan, size_t module, const RankPlace& place);

}  // namespace weft
