#include "weft/search/stage_options.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kMostOptions = 20'000'000;

Error out_of_time() {
  return {.kind = ErrorKind::kJob,
          .source = "balance",
          .problem = "no placement was found in the time given: that was too short to list the ways to fill stages",
          .advice = "Raise --time-limit, or take several layers as one block."};
}

/// Whether there is no time to look at another run of blocks.
class ListingTime {
 public:
  explicit ListingTime(const StageOptions::Limit& limit) : deadline_(limit.deadline), sure_runs_(limit.sure_runs) {}

  bool is_over() { return ++num_runs_ > sure_runs_ && deadline_.is_over(); }

 private:
  RareDeadline deadline_;
  int64_t sure_runs_;
  int64_t num_runs_ = 0;
};

/// Where stages can start, from how far the stages before reach and how far those behind reach back. A run that fits
/// still fits without its first or its last block, so one sweep each way is enough.
class Windows {
 public:
  Windows(StageSource& source, const StageOptions::Limit& limit, ListingTime& time)
      : source_(source), limit_(limit), time_(time), stages_(source.num_stages()), blocks_(source.num_blocks()) {}

  std::optional<Error> find() {
    if (!limit_.around.empty()) {
      find_around();
      return std::nullopt;
    }
    low.assign(static_cast<size_t>(stages_) + 1, blocks_);
    high.assign(static_cast<size_t>(stages_) + 1, 0);
    for (int32_t stage = 0; stage + 1 < stages_; ++stage) {
      const int32_t first = high[static_cast<size_t>(stage)];
      int32_t end = first;  // where not even one block fits, a stage that starts earlier may still reach this far
      while (end < blocks_ - (stages_ - stage - 1) && fits(stage, first, end + 1)) ++end;
      high[static_cast<size_t>(stage) + 1] = end;
    }
    // All that is left goes to the last stage, which may have to copy an embedding when that lies before it: here a
    // longer run can fit where a shorter does not.
    for (int32_t first = blocks_ - 1; first >= stages_ - 1; --first) {
      if (fits(stages_ - 1, first, blocks_)) low[static_cast<size_t>(stages_) - 1] = first;
    }
    for (int32_t stage = stages_ - 2; stage >= 0; --stage) {
      const int32_t end = low[static_cast<size_t>(stage) + 1];
      int32_t first = end;
      while (first > stage && fits(stage, first - 1, end)) --first;
      low[static_cast<size_t>(stage)] = first;
    }
    high.back() = blocks_;
    is_empty |= low[static_cast<size_t>(stages_) - 1] > high[static_cast<size_t>(stages_) - 1] || low.front() != 0;
    return error_;
  }

  /// What a stage that starts at a block may work for one microbatch.
  double most_ms(int32_t stage, int32_t first) const {
    return (limit_.below_ms - source_.lead_ms(stage, first)) / static_cast<double>(limit_.microbatches);
  }

  std::vector<int32_t> low, high;
  bool is_empty = false;

 private:
  void find_around() {
    for (int32_t stage = 0; stage < stages_; ++stage) {
      const int32_t first = limit_.around[static_cast<size_t>(stage)];
      low.push_back(stage == 0 ? 0 : std::max(stage, first - limit_.reach));
      high.push_back(stage == 0 ? 0 : std::min(blocks_ - (stages_ - stage), first + limit_.reach));
    }
    low.push_back(blocks_);
    high.push_back(blocks_);
  }

  bool fits(int32_t stage, int32_t first, int32_t end) {
    if (stage == 0 && first > 0) {
      // The first stage starts at the first block; the sweep back only asks how far it could reach.
      first = 0;
    }
    if (error_) return false;
    if (time_.is_over()) {
      error_ = out_of_time();
      return false;
    }
    scratch_.clear();
    if (auto error = source_.list(stage, first, end - first, scratch_)) error_ = std::move(error);
    return !error_ && !scratch_.empty() && scratch_.front().total_ms() <= most_ms(stage, first);
  }

  StageSource& source_;
  StageOptions::Limit limit_;
  ListingTime& time_;
  int32_t stages_, blocks_;
  std::vector<StageOption> scratch_;
  std::optional<Error> error_;
};

}  // namespace

Result<StageOptions> StageOptions::make(StageSource& source, const Limit& limit) {
  StageOptions made;
  made.num_stages_ = source.num_stages();
  made.num_blocks_ = source.num_blocks();
  ListingTime time(limit);
  Windows windows(source, limit, time);
  if (auto error = windows.find()) return *std::move(error);
  made.low_ = windows.low;
  made.high_ = windows.high;
  made.begins_.reserve(static_cast<size_t>(made.num_stages_) * (static_cast<size_t>(made.num_blocks_) + 1) + 1);
  for (int32_t stage = 0; stage < made.num_stages_; ++stage) {
    const auto s = static_cast<size_t>(stage);
    for (int32_t first = 0; first <= made.num_blocks_; ++first) {
      made.begins_.push_back(made.options_.size());
      if (windows.is_empty || first < std::max(stage, made.low_[s]) || first > made.high_[s]) continue;
      if (stage == 0 && first > 0) continue;
      const double most_ms = windows.most_ms(stage, first);
      for (int32_t end = std::max(first + 1, made.low_[s + 1]); end <= made.high_[s + 1]; ++end) {
        if (time.is_over()) return out_of_time();
        const size_t size = made.options_.size();
        if (auto error = source.list(stage, first, end - first, made.options_)) return *std::move(error);
        if (made.options_.size() == size) break;
        while (made.options_.size() > size && made.options_.back().total_ms() > most_ms) made.options_.pop_back();
        if (made.options_.size() == size) break;
        if (made.options_.size() > kMostOptions) {
          return Error{
              .source = "balance",
              .field = "chain",
              .problem = fmt::format("{} blocks on {} stages can be placed and recomputed in more than {} ways",
                                     made.num_blocks_, made.num_stages_, with_commas(kMostOptions)),
              .advice = "Take several layers as one block, or similar blocks as one kind."};
        }
      }
    }
  }
  made.begins_.push_back(made.options_.size());
  return made;
}

}  // namespace weft
