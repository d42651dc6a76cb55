#include "weft/search/frame_queue.h"

#include <algorithm>
#include <numeric>

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
  std::stable_sort(order_.begin(), order_.end(), [&](uint32_t i, uint32_t j) {
    const Frame &a = frames_[i], &b = frames_[j];
    const bool has_a = a.bound_ms > 0, has_b = b.bound_ms > 0;
    return has_a != has_b ? has_a : a.bound_ms < b.bound_ms;
  });
}

const Frame& FrameQueue::least_from(size_t begin, double limit_ms, FrameBounds& bounds) {
  // Sorted but for the front, whose bound may have grown.
  while (true) {
    Frame& front = frames_[order_[begin]];
    if (front.is_refined || front.bound_ms >= limit_ms || front.bound_ms == kInfinity) return front;
    front.bound_ms = std::max(front.bound_ms, bounds.llm_ms(front.degrees));
    front.is_refined = true;
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto place = std::find_if(first + 1, order_.end(),
                                    [&](uint32_t other) { return front.bound_ms <= frames_[other].bound_ms; });
    std::rotate(first, first + 1, place);
  }
}

}  // namespace weft
