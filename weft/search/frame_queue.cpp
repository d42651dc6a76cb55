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

Frame* FrameQueue::least_with(int64_t pp, double limit_ms, FrameBounds& bounds) {
  while (true) {
    Frame* least = nullptr;
    for (Frame& frame : frames_) {
      const bool is_known = frame.degrees.pp == pp && frame.bound_ms > 0 && !frame.is_probed;
      if (is_known && (least == nullptr || frame.bound_ms < least->bound_ms)) least = &frame;
    }
    if (least == nullptr || least->bound_ms >= limit_ms) return nullptr;
    if (least->is_refined) return least;
    refine(*least, limit_ms, bounds);
  }
}

Frame& FrameQueue::least_from(size_t begin, double limit_ms, FrameBounds& bounds) {
  // Sorted but for the front, whose bound may have grown.
  while (true) {
    Frame& front = frames_[order_[begin]];
    if (front.is_refined || front.bound_ms >= limit_ms || front.bound_ms == kInfinity) return front;
    refine(front, limit_ms, bounds);
    const auto first = order_.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto place = std::find_if(first + 1, order_.end(),
                                    [&](uint32_t other) { return front.bound_ms <= frames_[other].bound_ms; });
    std::rotate(first, first + 1, place);
  }
}

}  // namespace weft
