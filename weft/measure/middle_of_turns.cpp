#include "weft/measure/middle_of_turns.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"
#include "weft/base/median.h"

namespace weft {
namespace {

template <typename Measurement>
Measurement middle_of(const std::vector<Measurement>& turns, const std::vector<double Measurement::*>& times) {
  WEFT_CHECK(!turns.empty(), "the middle of no turns");
  // Bytes are counted, and the same in every turn.
  Measurement middle = turns.front();
  for (const auto field : times) {
    std::vector<double> values;
    for (const Measurement& turn : turns) values.push_back(turn.*field);
    middle.*field = median_of(std::move(values));
  }
  std::vector<double> sums, spreads;
  middle.sureness.runs = 0;
  for (const Measurement& turn : turns) {
    sums.push_back(turn.forward_ms + turn.backward_input_ms + turn.backward_weight_ms);
    spreads.push_back(turn.sureness.spread_percent);
    middle.sureness.runs += turn.sureness.runs;
  }
  const double sum = median_of(sums);
  std::vector<double> distances;
  for (const double own : sums) distances.push_back(sum > 0 ? 100 * std::abs(own - sum) / sum : 0);
  middle.sureness.spread_percent = std::max(median_of(std::move(spreads)), median_of(std::move(distances)));
  return middle;
}

}  // namespace

BlockMeasurement middle_of_turns(const std::vector<BlockMeasurement>& turns) {
  using Own = BlockMeasurement;
  return middle_of(turns, {&Own::forward_ms, &Own::backward_input_ms, &Own::backward_weight_ms, &Own::attention_ms});
}

OperatorMeasurement middle_of_turns(const std::vector<OperatorMeasurement>& turns) {
  using Own = OperatorMeasurement;
  return middle_of(turns, {&Own::forward_ms, &Own::backward_input_ms, &Own::backward_weight_ms});
}

}  // namespace weft
