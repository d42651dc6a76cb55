#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/meaning/block_exchanges.h"
#include "weft/meaning/call_list.h"
#include "weft/meaning/exchange_calls.h"
#include "weft/mesh/head_counts.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_flow.h"

namespace weft {

/// What attention does with the ranks that share its rows out, which have as many heads.
struct ContextExchange {
  BlockExchange exchange;  ///< of kHeads or kKeys; its operator is the program's
  Attention attention;
  std::vector<HeadCounts> heads;  ///< by tensor-parallel rank; none where it has no part of the operator
};

/// What ranks that share a block out do with each other at one point of what a program computes of it: those of tensor
/// parallelism or, in attention, those of context parallelism.
struct ProgramExchange {
  BlockPass pass = BlockPass::kForward;
  std::optional<Step> step;  ///< a value changes its layout, or its gradient does
  int64_t summed = 0;        ///< elsewhere: elements that are summed inside of an operator
  int64_t element_bytes = 0;
  std::optional<size_t> inside_of = std::nullopt;         ///< the operator that does it by itself
  std::optional<ContextExchange> of_rows = std::nullopt;  ///< with context-parallel ranks; none of the others then
};

/// The lengths of a block's dims in a run of so many samples.
RunLengths lengths_of(const BlockProgram& block, int64_t samples);

/// A block of a program on its tensor-parallel ranks. Everybody who needs to know what its strategy makes of it asks
/// here: what one run takes, what a rank has of a value, what is communicated.
class ProgramMeaning {
 public:
  /// How ranks run it.
  struct Ranks {
    int64_t tp = 1;
    bool divides_rows = false;  ///< between blocks
    bool reduces_first = false;
    int64_t ulysses = 1, ring = 1;  ///< of context parallelism, which has shared out the rows of a run
  };

  /// The block must outlive it. `wants_gradient`: by value, whether a weight is trained; empty: all are.
  ProgramMeaning(const BlockProgram& block, const Ranks& ranks, const std::vector<bool>& wants_gradient = {});

  const BlockProgram& block() const { return *block_; }
  const ProgramFlow& flow() const { return flow_; }
  /// Of a run with so many samples.
  RunLengths lengths(int64_t samples) const { return lengths_of(*block_, samples); }
  /// Samples that so many rows between blocks are of.
  int64_t samples_of(int64_t rows) const { return rows / block_->rows.rows_per_sample; }
  /// Elements that a rank has of a value as it is made, or the most that any has.
  int64_t elements(size_t value, const RunLengths& lengths, std::optional<int64_t> tp_rank) const;
  /// The same of a value as it arrived.
  int64_t elements(const Arrival& arrival, const RunLengths& lengths, std::optional<int64_t> tp_rank) const;

  /// Of packed heads that attention reads.
  HeadCounts heads(size_t attention, const RunLengths& lengths, int64_t tp_rank) const;

  /// In order: forward, then back. Those of weights' gradients (BlockPass) run in their turn, or later where a schedule
  /// splits backwards.
  std::vector<ProgramExchange> exchanges(const RunLengths& lengths, int64_t compute_bytes) const;

 private:
  int64_t elements(size_t value, const std::vector<AxisState>& states, const RunLengths& lengths,
                   std::optional<int64_t> tp_rank) const;

  const BlockProgram* block_;
  Ranks ranks_;
  ProgramFlow flow_;
};

/// The block's program with such lengths.
Program sized_program(const BlockProgram& block, const RunLengths& lengths);
Program sized_program(const BlockProgram& block, int64_t samples);

/// Whether operators that are to read summands read sums instead: below fp32 each summand would be rounded by itself.
inline bool reduces_first(Precision compute) {
  return num_bytes(compute) < 4;
}

/// By value of a block's program: whether it is a weight that has a gradient, as its operators say.
std::vector<bool> trained_values(const Block& block, const std::vector<OpGradients>& gradients);

/// What one rank calls for it.
void add_calls(const ProgramExchange& exchange, const ModulePlace& place, const SharedRows& rows, CallList& calls);

}  // namespace weft
