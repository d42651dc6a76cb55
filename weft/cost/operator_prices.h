#pragma once

#include <vector>

#include "weft/cost/axis_links.h"
#include "weft/cost/context_time.h"
#include "weft/cost/op_time.h"
#include "weft/cost/operator_times.h"
#include "weft/cost/transition_prices.h"
#include "weft/meaning/strategy.h"
#include "weft/program/program.h"

namespace weft {

/// What a program runs on, and how.
struct ShardSetting {
  Cluster cluster;
  AxisLinks links;
  Precision precision = Precision::kBf16;
  AttentionKernel attention = AttentionKernel::kFused;
  int64_t microbatches = 1;                 ///< that the program runs through between two updates
  const OperatorTimes* measured = nullptr;  ///< in place of formulas, where it has an operator
  const Segments* segments = nullptr;       ///< of a layer: the sequences that its rows are, for attention
  ContextSharing context = {};              ///< of a layer: who shares the rows of these sequences out

  DeviceRates rates() const { return rates_of(cluster, precision); }
};

/// A strategy of one operator: a choice for every axis.
using Choices = std::vector<Choice>;

/// One microbatch's time of an operator on the busiest rank, without what its operands need.
struct OperatorPrice {
  OpTime time;               ///< computing
  double inside_ms = 0;      ///< communication of its own that nothing hides, where `time` is without it
  bool is_measured = false;  ///< `time` is, with that communication
  bool is_scaled = false;    ///< from a measurement of another part of the operator
  double forward_ms() const { return time.forward_ms; }
  double backward_ms() const { return time.input_gradient_ms + time.weight_gradient_ms; }
  double compute_ms() const { return forward_ms() + backward_ms(); }
};

/// `segments`: the sequences that rows of attention are; nothing: each of its samples is one.
OperatorPrice price_operator(const Program& program, const Operator& op, const Choices& choices,
                             const ShardSetting& setting, const Segments* segments = nullptr);

/// How a weight is held besides how it is used: a ZeRO stage for every axis that does not cut it, see ZeroRules.
using ZeroStages = std::vector<int64_t>;

/// What keeping a weight costs.
struct WeightPrice {
  ZeroStages stages;
  double communication_ms = 0;  ///< a step
  double exposed_ms = 0;        ///< the part of it that computing does not hide
  double update_ms = 0;         ///< a step
  double state_bytes = 0;       ///< value, gradient and states
};

/// All ways of holding a weight whose operator uses it in the given states; what communicates in a microbatch hides
/// behind the operator's own computing. Of ways that take as long, those with lower stages come first.
std::vector<WeightPrice> price_weight(const std::vector<ProgramDim>& dims, const std::vector<AxisState>& used,
                                      const OperatorPrice& price, const std::vector<ZeroRange>& stages,
                                      const ShardSetting& setting);

}  // namespace weft
