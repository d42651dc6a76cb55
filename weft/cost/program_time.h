#pragma once

#include "weft/cost/block_time.h"
#include "weft/cost/operator_times.h"
#include "weft/meaning/program_exchanges.h"

namespace weft {

/// What a program computes of a block, as its ranks run it: operators on their parts, by the prices that strategies are
/// searched by. Without communication, and without a host that is late.
struct ProgramTime {
  BlockTime time;
  OpTime compute;              ///< of all operators
  std::vector<OpTime> ops;     ///< of each
  std::vector<bool> has_sent;  ///< by operator: its time is with what it communicates itself
  int64_t num_measured = 0;    ///< operators whose times a profile has, exactly or from another part of the operator
  int64_t num_scaled = 0;      ///< of these, the latter

  /// What hides communication, by a factor for each pass. Sums stay.
  void scale_ops(double forward, double input_gradient, double weight_gradient);
};
/// The meaning is the block's to the setting's ranks. `measured` takes the place of formulas where it has an operator.
ProgramTime program_time(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                         const Segments& segments, const OperatorTimes* measured = nullptr);
/// Adds what its exchanges take.
void add_communication(const ProgramMeaning& meaning, const BlockSetting& setting, const Cluster& cluster,
                       const Segments& segments, const ProgramTime& program, BlockTime& total);

}  // namespace weft
