#include "weft/meaning/batch_assignment.h"

#include <algorithm>

namespace weft {

BatchAssignment assign_in_order(const BatchShape& shape) {
  const BatchOrder& order = shape.llm;
  BatchAssignment assignment;
  assignment.llm.resize(static_cast<size_t>(order.data_parallel));
  for (int64_t rank = 0; rank < order.data_parallel; ++rank) {
    for (int64_t microbatch = 0; microbatch < order.microbatches; ++microbatch) {
      std::vector<int64_t>& samples = assignment.llm[static_cast<size_t>(rank)].emplace_back();
      for (int64_t place = 0; place < order.mbs; ++place) samples.push_back(order.index(rank, microbatch, place));
    }
  }
  for (const auto& [kind, encoder] : shape.encoders) {
    BatchAssignment::Shares& shares = assignment.encoders[kind];
    shares.resize(static_cast<size_t>(encoder.data_parallel));
    const int64_t at_once = encoder.at_once(order.mbs);
    for (int64_t first = 0; first < order.size(); first += at_once * encoder.data_parallel) {
      for (int64_t rank = 0; rank < encoder.data_parallel; ++rank) {
        std::vector<int64_t>& samples = shares[static_cast<size_t>(rank)].emplace_back();
        const int64_t begin = first + rank * at_once;
        for (int64_t sample = begin; sample < std::min(begin + at_once, order.size()); ++sample)
          samples.push_back(sample);
      }
    }
  }
  return assignment;
}

}  // namespace weft
