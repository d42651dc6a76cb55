#pragma once

#include "weft/meaning/rank_groups.h"
#include "weft/meaning/row_changes.h"
#include "weft/meaning/row_shares.h"
#include "weft/meaning/traffic_writer.h"
#include "weft/meaning/trainable.h"

namespace weft {

/// A rank of a module, and whom it talks to there.
struct ModulePlace {
  const ModulePlan* plan = nullptr;
  const Module* spec = nullptr;
  RankGroups groups;
  RankGroup tensor;
  RankGroup context;
  RankGroup ulysses;
  RankGroup ring;
  RankGroup data;
  RankGroup pipeline;
  RankGroup balance;
  RankGroup routed;
  RankGroup experts;
  RankGroup same_experts;
  RankGroup same_keys;
  RankGroup tied_ends;

  bool divides_rows() const { return plan->sequence_parallel && plan->tp > 1; }
  /// Of so many rows on all tensor-parallel ranks, those that this one has between blocks.
  Range rows_between(int64_t rows) const;
  int64_t local_rows(int64_t rows) const { return rows_between(rows).size(); }
};
/// Nothing where the rank has no part of the module.
std::optional<ModulePlace> place_on(const Plan& plan, size_t module, int64_t rank);

/// How often a block goes which way.
struct BlockPasses {
  int64_t forwards = 0;  ///< again for what is recomputed
  int64_t backwards = 0;
};

/// What one rank's blocks of one module move: tensor parallelism and context parallelism.
class BlockTraffic {
 public:
  BlockTraffic(const ModulePlace& place, int64_t compute_bytes, TrafficWriter& writer)
      : place_(place), bytes_(compute_bytes), writer_(writer) {}

  void change(RowChange change, int64_t rows, int64_t columns, const BlockPasses& passes);
  /// The changes of a layer or an exit, for so many rows between blocks and of the output. Its backward goes as far as
  /// gradients of its operators do.
  void changes(const Block& block, int64_t inside, int64_t outside, int64_t forwards,
               const std::vector<OpGradients>& gradients);
  /// Attention of rows that are shared out. `num_again`: how often a backward runs its core again by itself.
  void attention(const Attention& attention, const PackedSegments& segments, const RowDeal& deal,
                 const BlockPasses& passes, int64_t num_again);
  /// The largest logit, the sum and the target of every row, of which ranks have parts of the vocabulary.
  void vocabulary_loss(int64_t targets, int64_t loss_bytes, const BlockPasses& passes);
  /// Rows of an encoder go to where tokens need them.
  void exchange_media(const RowLists& made, const RowLists& needed, int64_t width, const BlockPasses& passes);

 private:
  const ModulePlace& place_;
  int64_t bytes_;
  TrafficWriter& writer_;
};

}  // namespace weft
