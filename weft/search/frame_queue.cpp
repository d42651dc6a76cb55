#include "weft/search/frame_queue.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "weft/search/enumerate.h"
#include "weft/search/precision.h"

namespace weft {

std::vector<Frame> list_frames(const Plan& problem, const PlanSpace& space) {
  std::vector<Frame> frames;
  for (const Candidate& degrees : enumerate_frames(problem, space)) {
    const int64_t size = choices_of(degrees, problem, space).size();
    if (size > 0) frames.push_back({.degrees = degrees, .size = size});
  }
  return frames;
}

FrameQueue::FrameQueue(std::vector<Frame> frames) : frames_(std::move(frames)), order_(frames_.size()) {
  std::iota(order_.begin(), order_.end(), 0u);
  sort();
}

void FrameQueue::sort() {
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t i, uint32_t j) {
    const Frame &a = frames_[i], &b = frames_[j];
    const bool has_a = a.bound_ms > 0, has_b = b.bound_ms > 0;
    return has_a != has_b ? has_a : a.bound_ms < b.bound_ms;
  });
}

void FrameQueue::refine(Frame& frame, double limit_ms, FrameBounds& bounds) {
  frame.bound_ms = std::max(frame.bound_ms, bounds.llm_ms(frame.degrees, limit_ms));
  frame.is_refined = true;
}

std::vector<int64_t> FrameQueue::pipelines() const {
  std::vector<int64_t> found;
  for (const uint32_t place : order_) {
    const int64_t pp = frames_[place].degrees.pp;
    if (std::find(found.begin(), found.end(), pp) == found.end()) found.push_back(pp);
  }
  return found;
}

Frame* FrameQueue::least_with(int64_t pp, double limit_ms, FrameBounds& bounds, const Deadline& deadline) {
  // By bound, of equals the first in the list.
  using Place = std::pair<double, uint32_t>;
  std::priority_queue<Place, std::vector<Place>, std::greater<>> queue;
  for (uint32_t i = 0; i < frames_.size(); ++i) {
    const Frame& frame = frames_[i];
    if (frame.degrees.pp == pp && frame.bound_ms > 0 && !frame.is_probed) queue.emplace(frame.bound_ms, i);
  }
  while (!queue.empty() && queue.top().first < limit_ms) {
    const uint32_t place = queue.top().second;
    Frame& least = frames_[place];
    if (least.is_refined) return &least;
    if (deadline.is_over()) return nullptr;
    refine(least, limit_ms, bounds);
    queue.pop();
    queue.emplace(least.bound_ms, place);
  }
  return nullptr;
}

std::vector<const Frame*> FrameQueue::likely_to_fit(size_t most, double memory_gib, FrameBounds& bounds) {
  struct Held {
    double gib;
    double bound_ms;
    const Frame* frame;
  };
  std::vector<Held> all;
  for (Frame& frame : frames_) {
    if (frame.bound_ms == kInfinity) continue;
    const double gib = bounds.least_held_gib(frame.degrees);
    // Without time, nothing may be known of a frame.
    if (gib <= memory_gib && frame.bound_ms == 0) frame.bound_ms = bounds.work_ms(frame.degrees);
    all.push_back({gib, frame.bound_ms, &frame});
  }
  const auto roomy_end =
      std::stable_partition(all.begin(), all.end(), [&](const Held& held) { return held.gib <= memory_gib; });
  std::stable_sort(all.begin(), roomy_end, [](const Held& a, const Held& b) { return a.bound_ms < b.bound_ms; });
  std::vector<const Frame*> found;
  const auto num_roomy = static_cast<size_t>(roomy_end - all.begin());
  for (size_t i = 0; i < std::min(most, num_roomy); ++i) found.push_back(all[i].frame);
  std::stable_sort(all.begin(), all.end(), [](const Held& a, const Held& b) { return a.gib < b.gib; });
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    if (std::find(found.begin(), found.end(), all[i].frame) == found.end()) found.push_back(all[i].frame);
  }
  return found;
}

Frame& FrameQueue::least_from(size_t begin, double limit_ms, FrameBounds& bounds, const Deadline& deadline) {
  // Sorted but for the front, whose bound may have grown.
  while (true) {
    Frame& front = frames_[order_[begin]];
    if (front.is_refined || front.bound_ms >= limit_ms || front.bound_ms == kInfinity || deadline.is_over())
      return front;
    refine(front, limit_ms, bounds);
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto place = std::find_if(first + 1, order_.end(),
                                    [&](uint32_t other) { return front.bound_ms <= frames_[other].bound_ms; });
    std::rotate(first, first + 1, place);
  }
}

}  // namespace weft
