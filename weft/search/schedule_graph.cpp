#include "weft/search/schedule_graph.h"

#include <algorithm>
#include <limits>

#include "weft/base/check.h"

namespace weft {
namespace {

size_t work_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return 0;
  return kind == ActionKind::kBackwardWeight ? 2 : 1;
}

/// Whether some point between a and b is at least v in every chunk: then v never decides a peak.
bool is_covered(const std::vector<int32_t>& v, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  double low = 0, high = 1;  // the share of b
  for (size_t c = 0; c < v.size(); ++c) {
    const double slope = b[c] - a[c];
    const double need = v[c] - a[c];
    if (slope == 0 && need > 0) return false;
    if (slope > 0) low = std::max(low, need / slope);
    if (slope < 0) high = std::min(high, need / slope);
  }
  return low <= high;
}

/// Drops what another vector covers, or with `pairs` two others. One after the other, so that of two that cover each
/// other one stays.
void drop_covered(std::vector<std::vector<int32_t>>& vectors, bool pairs) {
  for (size_t i = 0; i < vectors.size();) {
    bool covered = false;
    for (size_t a = 0; a < vectors.size() && !covered; ++a) {
      for (size_t b = a; b < (pairs ? vectors.size() : a + 1) && !covered; ++b) {
        covered = a != i && b != i && is_covered(vectors[i], vectors[a], vectors[b]);
      }
    }
    if (covered) {
      vectors.erase(vectors.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

}  // namespace

double CriticalPath::length_ms(std::span<const StageTimes> times, double p2p_ms) const {
  double length = p2p_ms * num_transfers;
  for (size_t stage = 0; stage < visits.size(); ++stage) {
    for (size_t work = 0; work < kNumWorks; ++work) length += visits[stage][work] * times[stage][work];
  }
  return length;
}

ScheduleGraph::ScheduleGraph(const Schedule& schedule) : num_stages_(schedule.num_stages()) {
  const auto num_cells = static_cast<size_t>(num_stages_) * static_cast<size_t>(schedule.num_microbatches);
  const auto cell = [&](int32_t stage, int32_t microbatch) {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule.num_microbatches) +
           static_cast<size_t>(microbatch);
  };
  // The node that makes a cell's output or input gradient; 0 before it is there.
  std::vector<int32_t> forward(num_cells, 0), gradient(num_cells, 0);
  std::vector<size_t> next(schedule.rows.size(), 0);
  std::vector<int32_t> last(schedule.rows.size(), 0);
  nodes_.reserve(num_actions(schedule) + 1);
  nodes_.push_back({0, 0, 0, false});
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      for (; next[rank] < schedule.rows[rank].size(); ++next[rank]) {
        const Action& action = schedule.rows[rank][next[rank]];
        WEFT_CHECK(is_pipeline_compute(action.kind), "{} in a compute-only schedule", to_text(action));
        const bool is_forward = action.kind == ActionKind::kForward;
        Node node{.before = last[rank],
                  .source = 0,
                  .work = action.stage * static_cast<int32_t>(kNumWorks) + static_cast<int32_t>(work_of(action.kind)),
                  .crosses = false};
        const int32_t from = is_forward ? action.stage - 1 : action.stage + 1;
        if ((is_forward || makes_gradient(action.kind)) && from >= 0 && from < num_stages_) {
          node.source = (is_forward ? forward : gradient)[cell(from, action.microbatch)];
          if (node.source == 0) break;
          node.crosses = schedule.crosses_ranks(std::min(from, action.stage));
        }
        last[rank] = static_cast<int32_t>(nodes_.size());
        if (is_forward) forward[cell(action.stage, action.microbatch)] = last[rank];
        if (makes_gradient(action.kind)) gradient[cell(action.stage, action.microbatch)] = last[rank];
        nodes_.push_back(node);
        has_moved = true;
      }
    }
  }
  WEFT_CHECK(nodes_.size() == num_actions(schedule) + 1, "the rows wait for each other for ever");
  end_ms_.assign(nodes_.size(), 0);
}

double ScheduleGraph::makespan_ms(std::span<const StageTimes> times, double p2p_ms) {
  const double* durations = times.data()->data();
  const double delays[2] = {0, p2p_ms};
  double makespan = 0;
  p2p_ms_ = p2p_ms;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const double arrival = end_ms_[static_cast<size_t>(node.source)] + delays[node.crosses ? 1 : 0];
    const double start = std::max(end_ms_[static_cast<size_t>(node.before)], arrival);
    end_ms_[i] = start + durations[node.work];
    makespan = std::max(makespan, end_ms_[i]);
  }
  return makespan;
}

CriticalPath ScheduleGraph::critical_path() const {
  CriticalPath path{.visits = std::vector<std::array<int32_t, kNumWorks>>(static_cast<size_t>(num_stages_))};
  auto at = static_cast<size_t>(std::max_element(end_ms_.begin() + 1, end_ms_.end()) - end_ms_.begin());
  while (at != 0) {
    const Node& node = nodes_[at];
    const auto work = static_cast<size_t>(node.work);
    ++path.visits[work / kNumWorks][work % kNumWorks];
    const double arrival = end_ms_[static_cast<size_t>(node.source)] + (node.crosses ? p2p_ms_ : 0);
    const bool waits_for_source = node.source != 0 && arrival > end_ms_[static_cast<size_t>(node.before)];
    if (waits_for_source && node.crosses) ++path.num_transfers;
    at = static_cast<size_t>(waits_for_source ? node.source : node.before);
  }
  return path;
}

std::vector<std::vector<int32_t>> in_flight_peaks(const Schedule& schedule, int32_t rank) {
  const std::vector<int32_t> stages = stages_of_rank(schedule, rank);
  std::vector<int32_t> held(stages.size(), 0);
  std::vector<std::vector<int32_t>> seen;
  bool is_rising = false;
  for (const Action& action : schedule.rows[static_cast<size_t>(rank)]) {
    const auto chunk = static_cast<size_t>(std::find(stages.begin(), stages.end(), action.stage) - stages.begin());
    if (action.kind == ActionKind::kForward) {
      ++held[chunk];
      is_rising = true;
    } else if (action.kind != ActionKind::kBackwardInput) {
      if (is_rising) seen.push_back(held);
      is_rising = false;
      --held[chunk];
    }
  }
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  // Pairs are only tried when there are few; a vector too many costs time, never correctness.
  constexpr size_t kMostForPairs = 64;
  drop_covered(seen, false);
  if (seen.size() <= kMostForPairs) drop_covered(seen, true);
  return seen;
}

}  // namespace weft
