#pragma once

#include <optional>

#include "weft/meaning/block_exchanges.h"
#include "weft/meaning/call_list.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/row_shares.h"
#include "weft/mesh/head_counts.h"

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

  bool divides_rows() const { return weft::divides_rows(*plan); }
  /// Of so many rows on all tensor-parallel ranks, those that this one has between blocks.
  Range rows_between(int64_t rows) const;
};
/// Nothing where the rank has no part of the module.
std::optional<ModulePlace> place_on(const Plan& plan, size_t module, int64_t rank);

/// What a rank has of a module's rows in one microbatch or macro batch, tensor-parallel ranks together.
struct SharedRows {
  int64_t inside = 0;   ///< between blocks
  int64_t outside = 0;  ///< that leave the module
  RowDeal deal;
  PackedSegments segments;  ///< rows that attend to each other
  PackedSegments windows;   ///< the same of layers that see windows, if there are any
  int64_t targets = 0;      ///< of the llm: rows with one
  RowLists made;            ///< of an inline encoder: rows that it gives, by rank of context parallelism
  RowLists needed;          ///< the same of the tokens that they stand for
};

/// What ranks call in a step that is a collective.
OperationKind operation_of(StepKind kind);

/// Turns the exchanges of a module's blocks into what one rank calls for its rows.
class ExchangeCalls {
 public:
  ExchangeCalls(const ModulePlace& place, int64_t compute_bytes) : place_(place), bytes_(compute_bytes) {}

  /// `expert_rows`: rows that go from this rank to others' experts and come to its own, of the block's router.
  void add(const BlockExchange& exchange, const Block& block, const SharedRows& rows, const Traffic& expert_rows,
           CallList& calls) const;
  /// The same of attention with these heads on this tensor-parallel rank.
  void add_attention(const BlockExchange& exchange, const Attention& attention, const HeadCounts& heads,
                     const SharedRows& rows, CallList& calls) const;
  /// So many rows on all tensor-parallel ranks, or their gradients.
  void add_change(RowChange change, int64_t rows, int64_t columns, bool goes_back, CallList& calls) const;

 private:
  void add_media(const RowLists& from, const RowLists& to, int64_t width, CallList& calls) const;
  void add_ring(const Attention& attention, const PackedSegments& segments, const std::vector<std::vector<Range>>& held,
                int64_t kv_heads, bool goes_back, CallList& calls) const;

  const ModulePlace& place_;
  int64_t bytes_;
};

}  // namespace weft
