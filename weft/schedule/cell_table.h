#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// A value for every stage and microbatch of a schedule, or for every group and macro batch of an encoder.
template <typename Value>
class CellTable {
 public:
  CellTable() = default;
  CellTable(int32_t num_stages, int32_t num_microbatches, Value initial)
      : num_microbatches_(static_cast<size_t>(num_microbatches)),
        values_(static_cast<size_t>(num_stages) * num_microbatches_, initial) {}
  CellTable(const Schedule& schedule, Value initial)
      : CellTable(schedule.num_stages(), schedule.num_microbatches, initial) {}

  Value& at(int32_t stage, int32_t microbatch) { return values_[cell(stage, microbatch)]; }
  const Value& at(int32_t stage, int32_t microbatch) const { return values_[cell(stage, microbatch)]; }
  /// By microbatch.
  std::span<const Value> of_stage(int32_t stage) const {
    return std::span(values_).subspan(cell(stage, 0), num_microbatches_);
  }

 private:
  size_t cell(int32_t stage, int32_t microbatch) const {
    return static_cast<size_t>(stage) * num_microbatches_ + static_cast<size_t>(microbatch);
  }

  size_t num_microbatches_ = 0;
  std::vector<Value> values_;
};

}  // namespace weft
