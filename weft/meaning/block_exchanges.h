#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "weft/meaning/row_changes.h"
#include "weft/meaning/trainable.h"
#include "weft/plan/plan.h"

namespace weft {

/// Among how many ranks a block is shared out.
struct BlockSharing {
  int64_t tp = 1, ulysses = 1, ring = 1, ep = 1;
  bool divides_rows = false;  ///< between blocks, by sequence parallelism
  bool experts_over_tp = false;
  bool balances_experts = false;  ///< routers have a loss for even loads
};
BlockSharing sharing_of(const ModulePlan& module, bool balances_experts);

enum class ExchangeKind : uint8_t {
  kRows,          ///< tp: rows change as `change` says or, `goes_back`, their gradients
  kLoss,          ///< tp: the largest logit, the sum and the target of every row
  kHeads,         ///< Ulysses: heads for rows or, `goes_back`, rows for heads again
  kKeys,          ///< ring: keys and values go round or, `goes_back`, go round once more and their gradients return
  kBalance,       ///< rows that chose each expert, summed over those who have one microbatch
  kExpertCounts,  ///< ep: how many rows each rank has for each expert
  kExpertRows,    ///< ep: rows go to their experts, gradients of what came of them too or, `goes_back`, return
  kMediaRows,     ///< cp: an encoder's rows go to the tokens that they stand for or, `goes_back`, gradients return
};

/// The pass through a block in which an exchange takes place.
enum class BlockPass : uint8_t { kForward, kBackwardInput, kBackwardWeight };

/// What ranks that share a block out do with each other at one point of it.
struct BlockExchange {
  ExchangeKind kind = ExchangeKind::kRows;
  BlockPass pass = BlockPass::kForward;
  bool goes_back = false;
  size_t op = 0;  ///< of the block: before which rows become whole, whose summands become rows, or which needs it
  RowChange change = RowChange::kEnter;  ///< of kRows
  bool has_outputs = false;    ///< of kRows: rows that leave the module, fewer than between blocks after a merge
  int64_t columns = 0;         ///< of kRows and kMediaRows
  bool happens_again = false;  ///< of kRows: rows become whole once more for the weight's gradient
  /// Whose weight's gradient that is: the operator's, or its adapter's. Of kExpertRows that go back: the last operator
  /// that experts have made them by.
  size_t weight_op = 0;
  bool has_keys = false;  ///< of kHeads: of queries, keys and values; else of queries alone

  bool operator==(const BlockExchange&) const = default;
};

/// The forward of a layer or an exit, in order; behind what a program computes of it (ProgramMeaning). An embedding's
/// depends on what is placed among its rows (entry_exchanges).
std::vector<BlockExchange> forward_exchanges(const Module& module, const Block& block, const BlockSharing& sharing);

/// Of them, those of one attention: it has its op's number.
std::vector<BlockExchange> attention_exchanges(size_t op, int64_t ulysses, int64_t ring);

/// Whether the llm gets an encoder's rows whole, on every tensor-parallel rank. Bridges bring them divided where the
/// llm has them divided between its blocks.
bool come_whole(const ModulePlan& llm, const ModulePlan& encoder);

/// What the llm's entry does with the rows of encoders.
struct EntryPlacing {
  bool places_whole_rows =
      false;                    ///< some come whole, on every tensor-parallel rank: among whole rows of the embedding
  bool needs_gradient = false;  ///< of the embedding's rows, for its table or for encoders whose rows come whole
};
/// `has_rows`: by ModuleKind, whether a microbatch has rows of that encoder.
EntryPlacing entry_placing(const Plan& plan, const Trainable& trainable,
                           const std::array<bool, 3>& has_rows = {true, true, true});

/// The forward of the llm's entry. Where rows of encoders come whole, they are placed among whole rows of the
/// embedding.
std::vector<BlockExchange> entry_exchanges(const Module& llm, const BlockSharing& sharing, bool places_whole_rows);

/// What becomes of an encoder's rows behind its exit.
struct OutputUse {
  bool is_in_pipeline =
      false;  ///< they go to the context-parallel ranks whose tokens they stand for; else bridges do it
  bool divides_parts =
      false;  ///< of their further parts each tensor-parallel rank goes on with those of its own tokens
};
OutputUse output_use(const Plan& plan, const ModulePlan& encoder);
/// An encoder's rows as the llm takes them in: whole on every tensor-parallel rank.
std::vector<BlockExchange> output_exchanges(const Module& encoder, const BlockSharing& sharing, const OutputUse& use);

/// The backward of the block that a forward is of, in order, recomputation included. It goes as far as gradients of its
/// operators do. Exchanges for weights' gradients (BlockPass) run in their turn, or later where a schedule splits the
/// backward.
std::vector<BlockExchange> backward_exchanges(const std::vector<BlockExchange>& forward,
                                              const std::vector<OpGradients>& gradients, BlockRecompute recompute);

}  // namespace weft
