#include "weft/schedule/row_patterns.h"

#include <algorithm>
#include <cstdint>

#include "weft/schedule/cell_table.h"

namespace weft {
namespace {

/// Appends to one rank's row.
class Row {
 public:
  Row(std::vector<Action>& actions, int32_t num_microbatches)
      : actions_(actions), num_microbatches_(num_microbatches) {}

  /// Microbatches past the end are left out, so that a pattern for more of them can be cut to size.
  void add(ActionKind kind, int32_t stage, int32_t microbatch) {
    if (microbatch < num_microbatches_) actions_.push_back({kind, stage, microbatch});
  }

 private:
  std::vector<Action>& actions_;
  int32_t num_microbatches_;
};

void add_gpipe(Row row, int32_t stage, int32_t m) {
  for (int32_t i = 0; i < m; ++i) row.add(ActionKind::kForward, stage, i);
  for (int32_t i = 0; i < m; ++i) row.add(ActionKind::kBackward, stage, i);
}

/// As many forwards ahead as there are ranks behind, then one forward and one backward in turn.
void add_1f1b(Row row, int32_t rank, int32_t pp, int32_t m) {
  const int32_t ahead = std::min(pp - rank - 1, m);
  for (int32_t i = 0; i < ahead; ++i) row.add(ActionKind::kForward, rank, i);
  for (int32_t i = 0; i < m; ++i) {
    if (i + ahead < m) row.add(ActionKind::kForward, rank, i + ahead);
    row.add(ActionKind::kBackward, rank, i);
  }
}

/// 1F1B with the backward split; the weight gradient trails by the rank's index, which fills the bubble that the rank
/// would have at the end and holds no more than pp microbatches.
void add_zb_h1(Row row, int32_t rank, int32_t pp, int32_t m) {
  const int32_t ahead = std::min(pp - rank - 1, m);
  for (int32_t i = 0; i < ahead; ++i) row.add(ActionKind::kForward, rank, i);
  for (int32_t i = 0; i < m; ++i) {
    if (i + ahead < m) row.add(ActionKind::kForward, rank, i + ahead);
    row.add(ActionKind::kBackwardInput, rank, i);
    if (i >= rank) row.add(ActionKind::kBackwardWeight, rank, i - rank);
  }
  for (int32_t i = std::max(0, m - rank); i < m; ++i) row.add(ActionKind::kBackwardWeight, rank, i);
}

/// Two chunks a rank, the second coming back. The pattern of the zero-bubble paper's V schedule for at least 2p−1
/// microbatches; fewer are cut out of it.
void add_zb_v(Row row, int32_t rank, int32_t pp, int32_t m) {
  const int32_t padded = std::max(2 * pp - 1, m);
  const int32_t down = rank;
  const int32_t up = 2 * pp - 1 - rank;
  int32_t f_down = 0, f_up = 0, b_down = 0, b_up = 0;
  const auto forward_down = [&] { row.add(ActionKind::kForward, down, f_down++); };
  const auto forward_up = [&] { row.add(ActionKind::kForward, up, f_up++); };
  const auto backward = [&](int32_t stage, int32_t& counter) {
    row.add(ActionKind::kBackwardInput, stage, counter);
    row.add(ActionKind::kBackwardWeight, stage, counter++);
  };
  for (int32_t i = 0; i < 2 * (pp - rank) - 1; ++i) forward_down();
  for (int32_t i = 0; i < rank; ++i) {
    forward_up();
    forward_down();
  }
  for (int32_t i = 0; i < pp - rank; ++i) {
    forward_up();
    backward(up, b_up);
  }
  while (f_up < f_down || f_down < padded) {
    if (f_down < padded) forward_down();
    backward(down, b_down);
    forward_up();
    backward(up, b_up);
  }
  int32_t w_down = b_down, w_up = b_up;
  for (int32_t i = 0; i < rank; ++i) {
    row.add(ActionKind::kBackwardInput, down, b_down++);
    row.add(ActionKind::kBackwardInput, up, b_up++);
  }
  for (int32_t i = 0; i < pp - rank; ++i) {
    row.add(ActionKind::kBackwardInput, down, b_down++);
    row.add(ActionKind::kBackwardWeight, down, w_down++);
  }
  while (w_up < b_up) row.add(ActionKind::kBackwardWeight, up, w_up++);
  while (w_down < b_down) row.add(ActionKind::kBackwardWeight, down, w_down++);
}

/// The order in which a rank meets its (chunk, microbatch) pairs: microbatches in groups of pp (the last may be short),
/// a group through all chunks before the next.
struct Visit {
  int32_t chunk;
  int32_t microbatch;
};

std::vector<Visit> interleaved_order(int32_t pp, int32_t vpp, int32_t m, bool is_backward) {
  std::vector<Visit> order;
  for (int32_t first = 0; first < m; first += pp) {
    for (int32_t step = 0; step < vpp; ++step) {
      const int32_t chunk = is_backward ? vpp - 1 - step : step;
      for (int32_t i = first; i < std::min(first + pp, m); ++i) order.push_back({chunk, i});
    }
  }
  return order;
}

/// Interleaved 1F1B. Each rank meets its forwards and its backwards in a fixed order and may be a fixed number of
/// forwards ahead; how the two interleave is found by playing the pipeline with F taking one unit and B two. With
/// microbatches in whole groups that is the usual alternation; after a short group a rank goes on with what is ready
/// instead of waiting.
class InterleavedGenerator {
 public:
  InterleavedGenerator(int32_t pp, int32_t vpp, int32_t m)
      : pp_(pp),
        vpp_(vpp),
        m_(m),
        forwards_(interleaved_order(pp, vpp, m, false)),
        backwards_(interleaved_order(pp, vpp, m, true)),
        ranks_(static_cast<size_t>(pp)),
        forward_end_(pp * vpp, m, kNever),
        backward_end_(pp * vpp, m, kNever) {}

  void fill(ScheduleRows& rows) {
    int32_t num_done = 0;
    for (int64_t now = 0; num_done < pp_; ++now) {
      for (int32_t rank = 0; rank < pp_; ++rank) {
        if (step(rank, now, rows[static_cast<size_t>(rank)])) ++num_done;
      }
    }
  }

 private:
  static constexpr int64_t kNever = INT64_MAX;

  struct RankState {
    size_t num_forwards = 0;
    size_t num_backwards = 0;
    int64_t free = 0;
  };

  int32_t stage_of(int32_t rank, const Visit& visit) const { return visit.chunk * pp_ + rank; }

  bool is_forward_ready(int32_t rank, const Visit& visit, int64_t now) const {
    const int32_t stage = stage_of(rank, visit);
    return stage == 0 || forward_end_.at(stage - 1, visit.microbatch) <= now;
  }

  bool is_backward_ready(int32_t rank, const Visit& visit, int64_t now) const {
    const int32_t stage = stage_of(rank, visit);
    const bool is_last = stage + 1 == pp_ * vpp_;
    return is_last ? forward_end_.at(stage, visit.microbatch) <= now
                   : backward_end_.at(stage + 1, visit.microbatch) <= now;
  }

  /// Lets a free rank take its next action; true when that was its last.
  bool step(int32_t rank, int64_t now, std::vector<Action>& row) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    if (state.free > now || state.num_backwards == backwards_.size()) return false;
    const size_t ahead = static_cast<size_t>((vpp_ - 1) * std::min(pp_, m_) + 2 * (pp_ - rank - 1)) + 1;
    const bool may_forward = state.num_forwards < forwards_.size() && state.num_forwards - state.num_backwards < ahead;
    if (may_forward && is_forward_ready(rank, forwards_[state.num_forwards], now)) {
      const Visit& visit = forwards_[state.num_forwards++];
      state.free = now + 1;
      forward_end_.at(stage_of(rank, visit), visit.microbatch) = state.free;
      row.push_back({ActionKind::kForward, stage_of(rank, visit), visit.microbatch});
      return false;
    }
    if (state.num_backwards < state.num_forwards && is_backward_ready(rank, backwards_[state.num_backwards], now)) {
      const Visit& visit = backwards_[state.num_backwards++];
      state.free = now + 2;
      backward_end_.at(stage_of(rank, visit), visit.microbatch) = state.free;
      row.push_back({ActionKind::kBackward, stage_of(rank, visit), visit.microbatch});
      return state.num_backwards == backwards_.size();
    }
    return false;
  }

  int32_t pp_, vpp_, m_;
  std::vector<Visit> forwards_, backwards_;
  std::vector<RankState> ranks_;
  CellTable<int64_t> forward_end_, backward_end_;
};

/// Fills every rank's row by itself.
template <typename AddRow>
void fill_each(const PipelineShape& shape, int64_t actions_per_cell, ScheduleRows& rows, AddRow add_row) {
  const auto pp = static_cast<int32_t>(shape.pp), m = static_cast<int32_t>(shape.microbatches);
  for (int32_t rank = 0; rank < pp; ++rank) {
    std::vector<Action>& actions = rows[static_cast<size_t>(rank)];
    actions.reserve(static_cast<size_t>(shape.microbatches * shape.vpp * actions_per_cell));
    add_row(Row(actions, m), rank, pp, m);
  }
}

constexpr int64_t kWhole = 2, kSplit = 3;  // actions of a microbatch in a stage, by whether its backward is split

}  // namespace

void fill_gpipe(const PipelineShape& shape, ScheduleRows& rows) {
  fill_each(shape, kWhole, rows, [](Row row, int32_t rank, int32_t, int32_t m) { add_gpipe(row, rank, m); });
}

void fill_1f1b(const PipelineShape& shape, ScheduleRows& rows) {
  fill_each(shape, kWhole, rows, add_1f1b);
}

void fill_interleaved_1f1b(const PipelineShape& shape, ScheduleRows& rows) {
  InterleavedGenerator(static_cast<int32_t>(shape.pp), static_cast<int32_t>(shape.vpp),
                       static_cast<int32_t>(shape.microbatches))
      .fill(rows);
}

void fill_zb_h1(const PipelineShape& shape, ScheduleRows& rows) {
  fill_each(shape, kSplit, rows, add_zb_h1);
}

void fill_zb_v(const PipelineShape& shape, ScheduleRows& rows) {
  fill_each(shape, kSplit, rows, add_zb_v);
}

}  // namespace weft
