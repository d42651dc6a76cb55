#include "weft/search/frame_queue.h"

#include <algorithm>

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

FrameQueue::FrameQueue(std::vector<Frame> frames) : frames_(std::move(frames)) {
  std::stable_sort(frames_.begin(), frames_.end(), [](const Frame& a, const Frame& b) {
    const bool has_a = a.bound_ms > 0, has_b = b.bound_ms > 0;
    return has_a != has_b ? has_a : a.bound_ms < b.bound_ms;
  });
}

const Frame& FrameQueue::least_from(size_t begin, double limit_ms, FrameBounds& bounds) {
  // Sorted but for the front, whose bound may have grown.
  while (true) {
    Frame& front = frames_[begin];
    if (front.is_refined || front.bound_ms >= limit_ms || front.bound_ms == kInfinity) return front;
    front.bound_ms = std::max(front.bound_ms, bounds.llm_ms(front.degrees));
    front.is_refined = true;
    for (size_t place = begin; place + 1 < frames_.size(); ++place) {
      if (frames_[place].bound_ms <= frames_[place + 1].bound_ms) break;
      std::swap(frames_[place], frames_[place + 1]);
    }
  }
}

}  // namespace weft
