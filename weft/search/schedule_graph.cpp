#include "weft/search/schedule_graph.h"

#include <algorithm>
#include <unordered_set>

#include "weft/base/check.h"
#include "weft/base/hash.h"
#include "weft/schedule/cell_table.h"

namespace weft {
Work work_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return kForwardWork;
    case ActionKind::kBackwardWeight:
      return kWeightWork;
    case ActionKind::kReduceGrad:
      return kReduceWork;
    case ActionKind::kUpdate:
      return kUpdateWork;
    default:
      return kInputWork;
  }
}

double CriticalPath::length_ms(std::span<const StageTimes> times) const {
  double length = 0;
  for (size_t stage = 0; stage < visits.size(); ++stage) {
    for (size_t work = 0; work < kNumWorks; ++work) length += visits[stage][work] * times[stage][work];
  }
  return length;
}

ScheduleGraph::ScheduleGraph(const Schedule& schedule)
    : num_stages_(schedule.num_stages()), durations_(static_cast<size_t>(num_stages_) * kNumWorks + 1, 0) {
  constexpr auto kWorks = static_cast<int32_t>(kNumWorks);
  const int32_t zero = num_stages_ * kWorks;
  // The node that makes a cell's output or input gradient; 0 before it is there.
  CellTable<int32_t> forward(schedule, 0), gradient(schedule, 0);
  std::vector<size_t> next(schedule.rows.size(), 0);
  std::vector<int32_t> last(schedule.rows.size(), 0), last_reduce(schedule.rows.size(), 0);
  std::vector<int32_t> reduced(static_cast<size_t>(num_stages_), 0);
  nodes_.reserve(num_actions(schedule) + 1);
  nodes_.push_back({0, 0, zero, zero});
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      for (; next[rank] < schedule.rows[rank].size(); ++next[rank]) {
        const Action& action = schedule.rows[rank][next[rank]];
        const auto here = static_cast<int32_t>(nodes_.size());
        Node node{.before = last[rank],
                  .source = 0,
                  .work = action.stage * kWorks + static_cast<int32_t>(work_of(action.kind)),
                  .delay = zero};
        if (action.kind == ActionKind::kReduceGrad) {
          // Beside compute, after what it reduces and after the reduction before it.
          node.source = node.before;
          node.before = last_reduce[rank];
          last_reduce[rank] = reduced[static_cast<size_t>(action.stage)] = here;
        } else if (action.kind == ActionKind::kUpdate) {
          node.source = reduced[static_cast<size_t>(action.stage)];
          last[rank] = here;
        } else {
          WEFT_CHECK(is_pipeline_compute(action.kind), "{} in a compute-only schedule", to_text(action));
          const bool is_forward = action.kind == ActionKind::kForward;
          const int32_t from = is_forward ? action.stage - 1 : action.stage + 1;
          if ((is_forward || makes_gradient(action.kind)) && from >= 0 && from < num_stages_) {
            node.source = (is_forward ? forward : gradient).at(from, action.microbatch);
            if (node.source == 0) break;
            const int32_t boundary = std::min(from, action.stage);
            if (schedule.crosses_ranks(boundary)) node.delay = boundary * kWorks + static_cast<int32_t>(kTransferWork);
          }
          last[rank] = here;
          if (is_forward) forward.at(action.stage, action.microbatch) = here;
          if (makes_gradient(action.kind)) gradient.at(action.stage, action.microbatch) = here;
        }
        nodes_.push_back(node);
        has_moved = true;
      }
    }
  }
  WEFT_CHECK(nodes_.size() == num_actions(schedule) + 1, "the rows wait for each other for ever");
  end_ms_.assign(nodes_.size(), 0);
}

double ScheduleGraph::makespan_ms(std::span<const StageTimes> times) {
  double* out = durations_.data();
  for (const StageTimes& of : times) out = std::copy(of.begin(), of.end(), out);
  const double* durations = durations_.data();
  double makespan = 0;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const double arrival = end_ms_[static_cast<size_t>(node.source)] + durations[node.delay];
    const double start = std::max(end_ms_[static_cast<size_t>(node.before)], arrival);
    end_ms_[i] = start + durations[node.work];
    makespan = std::max(makespan, end_ms_[i]);
  }
  return makespan;
}

CriticalPath ScheduleGraph::critical_path() const {
  CriticalPath path{.visits = std::vector<std::array<int32_t, kNumWorks>>(static_cast<size_t>(num_stages_))};
  const auto visit = [&](int32_t index) {
    const auto i = static_cast<size_t>(index);
    if (i + 1 < durations_.size()) ++path.visits[i / kNumWorks][i % kNumWorks];
  };
  auto at = static_cast<size_t>(std::max_element(end_ms_.begin() + 1, end_ms_.end()) - end_ms_.begin());
  while (at != 0) {
    const Node& node = nodes_[at];
    visit(node.work);
    const double arrival = end_ms_[static_cast<size_t>(node.source)] + durations_[static_cast<size_t>(node.delay)];
    const bool waits_for_source = node.source != 0 && arrival > end_ms_[static_cast<size_t>(node.before)];
    if (waits_for_source) visit(node.delay);
    at = static_cast<size_t>(waits_for_source ? node.source : node.before);
  }
  return path;
}

namespace {

struct MomentHash {
  size_t operator()(const MemoryMoment& moment) const {
    Hasher hasher;
    for (const int32_t held : moment.held) hasher.add(held);
    for (const int32_t deferred : moment.deferred) hasher.add(deferred);
    hasher.add(moment.runs);
    return hasher.value();
  }
};

/// Whether a holds at least as much as b everywhere, at the same chunk's action.
bool covers(const MemoryMoment& a, const MemoryMoment& b) {
  if (a.runs != b.runs) return false;
  for (size_t i = 0; i < a.held.size(); ++i) {
    if (a.held[i] < b.held[i] || a.deferred[i] < b.deferred[i]) return false;
  }
  return true;
}

/// Whether some mix of a and b covers c.
bool mix_covers(const MemoryMoment& a, const MemoryMoment& b, const MemoryMoment& c) {
  if (a.runs != c.runs || b.runs != c.runs) return false;
  double low = 0, high = 1;  // the share of a
  const auto narrow = [&](int32_t of_a, int32_t of_b, int32_t of_c) {
    const double slope = of_a - of_b, need = of_c - of_b;
    if (slope > 0) {
      low = std::max(low, need / slope);
    } else if (slope < 0) {
      high = std::min(high, need / slope);
    } else if (need > 0) {
      high = -1;
    }
  };
  for (size_t i = 0; i < c.held.size(); ++i) {
    narrow(a.held[i], b.held[i], c.held[i]);
    narrow(a.deferred[i], b.deferred[i], c.deferred[i]);
  }
  return low <= high + 1e-12;
}

void drop_covered(std::vector<MemoryMoment>& moments, bool with_pairs) {
  for (size_t i = 0; i < moments.size();) {
    bool is_covered = false;
    for (size_t a = 0; a < moments.size() && !is_covered; ++a) {
      if (a == i) continue;
      is_covered = covers(moments[a], moments[i]);
      for (size_t b = a + 1; with_pairs && b < moments.size() && !is_covered; ++b)
        is_covered = b != i && mix_covers(moments[a], moments[b], moments[i]);
    }
    if (is_covered) {
      moments.erase(moments.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

}  // namespace

std::vector<MemoryMoment> memory_moments(const Schedule& schedule, int32_t rank) {
  const std::vector<int32_t> stages = stages_of_rank(schedule, rank);
  MemoryMoment now{.held = std::vector<int32_t>(stages.size(), 0), .deferred = std::vector<int32_t>(stages.size(), 0)};
  // A pipeline's steady state repeats its moments: most are seen before.
  std::unordered_set<MemoryMoment, MomentHash> known;
  for (const Action& action : schedule.rows[static_cast<size_t>(rank)]) {
    if (!is_pipeline_compute(action.kind)) continue;
    const auto chunk = static_cast<size_t>(std::find(stages.begin(), stages.end(), action.stage) - stages.begin());
    now.runs = static_cast<int32_t>(chunk);
    if (action.kind == ActionKind::kForward) ++now.held[chunk];
    known.insert(now);
    if (action.kind == ActionKind::kBackwardInput) ++now.deferred[chunk];
    if (action.kind == ActionKind::kBackwardWeight) --now.deferred[chunk];
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight) --now.held[chunk];
  }
  std::vector<MemoryMoment> seen(known.begin(), known.end());
  std::sort(seen.begin(), seen.end());
  // Pairs are only tried when there are few; a moment too many costs time, never correctness.
  constexpr size_t kMostForPairs = 64;
  drop_covered(seen, false);
  if (seen.size() <= kMostForPairs) drop_covered(seen, true);
  return seen;
}

}  // namespace weft
