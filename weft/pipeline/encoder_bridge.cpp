#include "weft/pipeline/encoder_bridge.h"

#include <algorithm>
#include <chrono>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"

namespace weft {

EncoderBridge::EncoderBridge(Settings settings) : settings_(std::move(settings)) {
  WEFT_CHECK(std::ssize(settings_.data_parallel_ranks) == settings_.rows.size(), "{} of {} ranks are told of",
             settings_.data_parallel_ranks.size(), settings_.rows.size());
  data_parallel_rank_ = settings_.data_parallel_ranks[static_cast<size_t>(settings_.rows.rank())];
}

std::vector<std::vector<int64_t>> EncoderBridge::tell(const std::vector<int64_t>& own) {
  Group& group = settings_.rows;
  const auto count = std::ssize(own);
  std::vector<int64_t> counts(static_cast<size_t>(group.size()));
  group
      .all_gather(ConstBuffer(&count, 1, DataType::kInt64),
                  Buffer{.data = counts.data(), .count = group.size(), .type = DataType::kInt64})
      .wait();
  int64_t total = 0;
  for (const int64_t n : counts) total += n;
  std::vector<std::vector<int64_t>> needed(counts.size());
  if (total == 0) return needed;
  std::vector<int64_t> all(static_cast<size_t>(total));
  group
      .all_gather(ConstBuffer(own.data(), count, DataType::kInt64),
                  Buffer{.data = all.data(), .count = total, .type = DataType::kInt64}, counts)
      .wait();
  auto next = all.begin();
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    needed[rank].assign(next, next + counts[rank]);
    next += counts[rank];
  }
  return needed;
}

void EncoderBridge::plan_routes(const std::vector<std::vector<int64_t>>& made_by_rank,
                                const std::vector<std::vector<int64_t>>& needed_by_rank) {
  // By macro batch, with numbers that begin in it.
  const auto by_macro = [&](const std::vector<std::vector<int64_t>>& by_rank) {
    std::vector<RowLists> lists(macros_.size(), RowLists(by_rank.size()));
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (const int64_t row : by_rank[rank]) {
        const int64_t k = numbers_.macro_of(row);
        lists[static_cast<size_t>(k)][rank].push_back(row - numbers_.rows(k).begin);
      }
    }
    return lists;
  };
  const std::vector<RowLists> made = by_macro(made_by_rank);
  const std::vector<RowLists> needed = by_macro(needed_by_rank);
  for (size_t k = 0; k < macros_.size(); ++k) {
    macros_[k].there = plan_row_route(made[k], needed[k]);
    if (has_gradients_) macros_[k].back = plan_row_route(needed[k], made[k]);
  }
}

std::vector<std::vector<int64_t>> EncoderBridge::list_made(const std::vector<std::vector<int64_t>>& own) {
  std::vector<std::vector<int64_t>> made(settings_.data_parallel_ranks.size());
  if (settings_.shares_rows) {
    std::vector<int64_t> rows;
    for (size_t k = 0; makes_rows() && k < own.size(); ++k) {
      const Range all = numbers_.rows(static_cast<int64_t>(k), data_parallel_rank_);
      for (const int64_t row : own[k]) rows.push_back(all.begin + row);
    }
    return tell(rows);
  }
  for (size_t rank = 0; rank < made.size(); ++rank) {
    if (settings_.data_parallel_ranks[rank] < 0) continue;
    for (size_t k = 0; k < macros_.size(); ++k) {
      const Range rows = numbers_.rows(static_cast<int64_t>(k), settings_.data_parallel_ranks[rank]);
      for (int64_t row = rows.begin; row < rows.end; ++row) made[rank].push_back(row);
    }
  }
  return made;
}

void EncoderBridge::begin(RowNumbers numbers, std::vector<std::vector<int64_t>> needed,
                          const std::vector<std::vector<int64_t>>& made, bool has_gradients) {
  numbers_ = std::move(numbers);
  has_gradients_ = has_gradients && settings_.gradients.has_value();
  macros_.clear();
  macros_.resize(static_cast<size_t>(numbers_.num_macro_batches()));
  runs_.clear();
  next_rows_ = next_gradients_ = 0;
  last_given_ = -1;
  waited_ms_ = 0;
  std::vector<int64_t> own;
  for (const std::vector<int64_t>& rows : needed) {
    std::vector<Run>& runs = runs_.emplace_back();
    for (const int64_t row : rows) {
      const int64_t k = numbers_.macro_of(row);
      // Rows of a macro batch come in the order in which microbatches need them.
      if (runs.empty() || runs.back().macro != k)
        runs.push_back({.macro = k, .first = macro(k).num_unread, .count = 0});
      ++runs.back().count;
      ++macro(k).num_unread;
      ++macro(k).num_ungiven;
    }
    own.insert(own.end(), rows.begin(), rows.end());
  }
  const std::vector<std::vector<int64_t>> made_by_rank = list_made(made);
  plan_routes(made_by_rank, tell(own));
}

at::Tensor EncoderBridge::wait_for(RowTransfer& transfer) {
  const double start = now_ms();
  at::Tensor rows = transfer.wait();
  waited_ms_ += now_ms() - start;
  return rows;
}

void EncoderBridge::let_go() {
  const auto is_over = [](std::optional<RowTransfer>& transfer) { return !transfer || transfer->is_done(); };
  for (Macro& each : macros_) {
    is_over(each.rows_on_their_way);
    is_over(each.gradients_on_their_way);
  }
}

void EncoderBridge::send_rows(int64_t index, const at::Tensor& rows) {
  let_go();
  WEFT_CHECK(index == next_rows_, "macro batch {} was made when {} is next", index, next_rows_);
  ++next_rows_;
  macro(index).rows_on_their_way =
      start_rows(settings_.rows, macro(index).there, rows, settings_.width, settings_.options);
}

void EncoderBridge::wait_until_sent(int64_t index) {
  if (index < 0 || !macro(index).rows_on_their_way) return;
  const double start = now_ms();
  macro(index).rows_on_their_way->finish();
  waited_ms_ += now_ms() - start;
}

void EncoderBridge::start_rows_until(int64_t index) {
  WEFT_CHECK(!makes_rows() || index < next_rows_, "macro batch {} is needed before it was made", index);
  while (next_rows_ <= index) {
    macro(next_rows_).rows_on_their_way =
        start_rows(settings_.rows, macro(next_rows_).there, {}, settings_.width, settings_.options);
    ++next_rows_;
  }
}

at::Tensor EncoderBridge::take_rows(int64_t microbatch) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> pieces;
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) {
    start_rows_until(run.macro);
    Macro& from = macro(run.macro);
    if (!from.rows.defined()) from.rows = wait_for(*from.rows_on_their_way);
    pieces.push_back(from.rows.narrow(0, run.first, run.count));
    from.num_unread -= run.count;
    if (from.num_unread == 0) from.rows.reset();
  }
  if (pieces.empty()) return at::empty({0, settings_.width}, settings_.options);
  return pieces.size() == 1 ? pieces.front() : at::cat(pieces);
}

void EncoderBridge::give_gradient(int64_t microbatch, const at::Tensor& gradient) {
  const at::NoGradGuard no_graph;
  let_go();
  int64_t begin = 0;
  for (const Run& run : runs_[static_cast<size_t>(microbatch)]) {
    Macro& of = macro(run.macro);
    const at::Tensor part = gradient.narrow(0, begin, run.count);
    begin += run.count;
    const int64_t num_rows = of.back.num_held[static_cast<size_t>(settings_.rows.rank())];
    if (run.count == num_rows) {
      of.gradient = part;
    } else {
      if (!of.gradient.defined()) of.gradient = at::empty({num_rows, settings_.width}, settings_.options);
      of.gradient.narrow(0, run.first, run.count).copy_(part);
    }
    of.num_ungiven -= run.count;
    last_given_ = std::max(last_given_, run.macro);
  }
  WEFT_CHECK(begin == gradient.size(0), "a gradient of {} rows for {}", gradient.size(0), begin);
  start_gradients_until(last_given_);
}

void EncoderBridge::start_gradients_until(int64_t last) {
  while (next_gradients_ <= last && macro(next_gradients_).num_ungiven == 0) {
    Macro& complete = macro(next_gradients_++);
    complete.gradients_on_their_way =
        start_rows(*settings_.gradients, complete.back, complete.gradient, settings_.width, settings_.options);
    complete.gradient.reset();
  }
}

at::Tensor EncoderBridge::take_gradient(int64_t index) {
  start_gradients_until(index);
  Macro& of = macro(index);
  WEFT_CHECK(of.gradients_on_their_way, "{} gradients of macro batch {} have not been given here", of.num_ungiven,
             index);
  return wait_for(*of.gradients_on_their_way);
}

void EncoderBridge::end() {
  for (Macro& ended : macros_) {
    if (ended.rows_on_their_way) ended.rows_on_their_way->finish();
    if (ended.gradients_on_their_way) ended.gradients_on_their_way->finish();
    WEFT_CHECK(!ended.rows.defined() && !ended.gradient.defined(), "a step left rows of an encoder behind");
  }
  macros_.clear();
}

}  // namespace weft
