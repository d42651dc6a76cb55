#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/meaning/row_numbers.h"
#include "weft/mesh/own_route.h"
#include "weft/plan/plan.h"

namespace weft {

/// The ranks of a bridge's group: who makes an encoder's rows, and who takes them in.
struct BridgeEnds {
  std::vector<int64_t> makers;     ///< by rank: the encoder's data-parallel rank, -1 where it is not
  std::vector<int64_t> takers;     ///< by rank: the llm's, -1 where it does not begin there
  bool makers_are_copies = false;  ///< several ranks of one of the encoder's data-parallel ranks make the same rows
  bool takers_are_copies = false;  ///< several of the llm's need the same
};

/// The bridge of an encoder beside the llm's pipeline.
struct PlannedBridge {
  std::vector<int64_t> ranks;  ///< its group, as the world numbers them
  BridgeEnds ends;
  /// Context parallelism shares out the rows that a data-parallel rank of the encoder makes, as only its ranks know.
  bool shares_made = false;
  /// Context or sequence parallelism shares out those that one of the llm takes in, by where its tokens are.
  bool shares_taken = false;

  /// Whether ranks tell each other what they make and take.
  bool is_told() const { return shares_made || shares_taken; }
};
PlannedBridge planned_bridge(const Plan& plan, size_t module);

/// Where rows go between an encoder and the llm, and their gradients, as far as one rank has to do with it: routes of
/// each macro batch, from what all ranks know of a batch, as runs of rows, and only from the ranks whose needs decide
/// on this rank's messages.
class BridgeRoutes {
 public:
  BridgeRoutes(BridgeEnds ends, int64_t rank);

  /// A step begins. All of a data-parallel rank's ranks make, and take in, all of its samples' rows.
  void begin(const RowNumbers& numbers, const BatchAssignment::Shares& llm);
  /// The other ranks whose rows decide on this one's messages. Symmetric.
  std::vector<int64_t> neighbours() const;
  /// Ranks take in only some rows, or make only some: those that are told, in the order in which they keep them. Ranks
  /// that are not told have none.
  void take_only(std::span<const RowRun> taken);
  void make_only(std::span<const RowRun> made);

  /// From who makes the rows of a macro batch to who takes them in, and the way back.
  OwnRoute rows(int64_t macro) const { return plan(macro, /*is_forward=*/true); }
  OwnRoute gradients(int64_t macro) const { return plan(macro, /*is_forward=*/false); }

 private:
  /// Rows of one maker that a unit takes in: all ranks of a data-parallel rank, or a rank.
  struct Need {
    int64_t unit = 0;
    int64_t maker = 0;
    Range rows;
    int64_t place = 0;  ///< of the first in what the unit takes of the macro batch
  };
  /// The needs of a macro batch, by unit as they are and by maker.
  struct Macro {
    std::vector<Need> needs;
    std::vector<size_t> unit_begins;
    std::vector<size_t> by_maker;
    std::vector<size_t> maker_begins;
    std::vector<RowRun> made;  ///< where it is told, by rank
  };

  void sort_needs();
  /// The parts of ranks' rows that each lie in one macro batch and, `by_maker`, are of one maker, rank by rank: `visit`
  /// gets the macro batch, the rank, the rows and the place of the first among that rank's rows of the macro batch.
  template <typename Visit>
  void each_piece(std::span<const RowRun> runs, bool by_maker, Visit visit) const;
  OwnRoute plan(int64_t macro, bool is_forward) const;
  void add_made(int64_t macro, int64_t rank, std::vector<RowRun>& runs) const;
  template <typename Visit>
  void each_of_unit(const Macro& macro, int64_t unit, Visit visit) const;
  template <typename Visit>
  void each_of_maker(const Macro& macro, int64_t maker, Visit visit) const;
  template <typename Visit>
  void each_of_taker(const Macro& macro, int64_t taker, Visit visit) const;

  BridgeEnds ends_;
  int64_t rank_;
  int64_t own_maker_;
  int64_t own_taker_;
  std::vector<std::vector<int64_t>> ranks_of_maker_;
  std::vector<std::vector<int64_t>> ranks_of_taker_;

  // Of a step.
  const RowNumbers* numbers_ = nullptr;
  bool units_are_ranks_ = false;
  bool is_made_told_ = false;
  std::vector<Macro> macros_;
};

}  // namespace weft
