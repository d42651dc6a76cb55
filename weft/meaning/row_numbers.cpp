#include "weft/meaning/row_numbers.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

RowNumbers::RowNumbers(ModuleKind encoder, const BatchAssignment::Shares& shares,
                       std::span<const MediaRowCounts> samples)
    : samples_(samples.size()) {
  const bool is_vision = encoder == ModuleKind::kVision;
  const size_t num_macro = shares.empty() ? 0 : shares.front().size();
  int64_t next = 0;
  const auto take = [&next](int64_t count) {
    next += count;
    return Range{next - count, next};
  };
  for (size_t macro = 0; macro < num_macro; ++macro) {
    macro_begins_.push_back(next);
    auto& ranges = rank_ranges_.emplace_back();
    for (const auto& rank : shares) {
      WEFT_CHECK(rank.size() == num_macro, "a rank has {} macro batches, another {}", rank.size(), num_macro);
      const int64_t begin = next;
      for (const int64_t sample : rank[macro]) {
        WEFT_CHECK(sample >= 0 && sample < std::ssize(samples_), "sample {} of {}", sample, samples_.size());
        const MediaRowCounts& counts = samples[static_cast<size_t>(sample)];
        SampleRows& rows = samples_[static_cast<size_t>(sample)];
        rows.image = take(is_vision ? counts.image : counts.audio);
        rows.macro = static_cast<int64_t>(macro);
        rows.maker = std::ssize(ranges);
      }
      for (const int64_t sample : rank[macro])
        samples_[static_cast<size_t>(sample)].video = take(is_vision ? samples[static_cast<size_t>(sample)].video : 0);
      ranges.push_back({begin, next});
    }
  }
  macro_begins_.push_back(next);
}

Range RowNumbers::rows(int64_t macro) const {
  return {macro_begins_[static_cast<size_t>(macro)], macro_begins_[static_cast<size_t>(macro) + 1]};
}

Range RowNumbers::rows(int64_t macro, int64_t data_parallel_rank) const {
  return rank_ranges_[static_cast<size_t>(macro)][static_cast<size_t>(data_parallel_rank)];
}

int64_t RowNumbers::macro_of(int64_t row) const {
  return std::upper_bound(macro_begins_.begin(), macro_begins_.end(), row) - macro_begins_.begin() - 1;
}

int64_t RowNumbers::maker_of(int64_t macro, int64_t row) const {
  const std::vector<Range>& ranges = rank_ranges_[static_cast<size_t>(macro)];
  const auto found = std::upper_bound(ranges.begin(), ranges.end(), row,
                                      [](int64_t value, const Range& range) { return value < range.end; });
  return found - ranges.begin();
}

void RowNumbers::add_runs_of(std::span<const int64_t> samples, std::vector<Run>& runs) const {
  const auto add = [&](Range rows, const SampleRows& of) {
    if (!rows.empty()) runs.push_back({rows, of.macro, of.maker});
  };
  for (const int64_t sample : samples) {
    const SampleRows& of = samples_[static_cast<size_t>(sample)];
    add(of.image, of);
  }
  for (const int64_t sample : samples) {
    const SampleRows& of = samples_[static_cast<size_t>(sample)];
    add(of.video, of);
  }
}

std::vector<int64_t> RowNumbers::rows_of(std::span<const int64_t> samples) const {
  std::vector<int64_t> rows;
  const auto add = [&rows](Range range) {
    for (int64_t row = range.begin; row < range.end; ++row) rows.push_back(row);
  };
  for (const int64_t sample : samples) add(samples_[static_cast<size_t>(sample)].image);
  for (const int64_t sample : samples) add(samples_[static_cast<size_t>(sample)].video);
  return rows;
}

}  // namespace weft
