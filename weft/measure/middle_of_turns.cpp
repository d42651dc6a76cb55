#include "weft/measure/middle_of_turns.h"

#include <algorithm>
#include <cmath>

#include "weft/base/check.h"
#include "weft/base/median.h"

namespace weft {

BlockMeasurement middle_of_turns(const std::vector<BlockMeasurement>& turns) {
  WEFT_CHECK(!turns.empty(), "the middle of no turns");
  // Bytes are counted, and the same in every turn.
  BlockMeasurement middle = turns.front();
  const auto median_of_field = [&](double BlockMeasurement::*field) {
    std::vector<double> values;
    for (const BlockMeasurement& turn : turns) values.push_back(turn.*field);
    return median_of(std::move(values));
  };
  for (const auto field : {&BlockMeasurement::forward_ms, &BlockMeasurement::backward_input_ms,
                           &BlockMeasurement::backward_weight_ms, &BlockMeasurement::attention_ms})
    middle.*field = median_of_field(field);
  std::vector<double> sums, spreads;
  middle.sureness.runs = 0;
  for (const BlockMeasurement& turn : turns) {
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

}  // namespace weft
