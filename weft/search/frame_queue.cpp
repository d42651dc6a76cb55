#include "weft/search/frame_queue.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
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

void FrameQueue::forget_probes() {
  for (Frame& frame : frames_) frame.is_probed = false;
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

/// One of those that differ in what a rank's memory hardly depends on: the smallest micro-batch, of equals the least
/// bound that is known.
std::vector<Frame*> FrameQueue::one_of_each() {
  const auto key = [](const Candidate& c) {
    return std::tuple(c.tp, c.cp, c.pp, c.ep, c.sequence_parallel, c.experts_over_tp, c.encoders[0].ranks,
                      c.encoders[1].ranks);
  };
  static_assert(kMostEncoders == 2);
  const auto is_better = [](const Frame& a, const Frame& b) {
    const auto order = [](const Frame& frame) {
      return std::tuple(frame.degrees.mbs, frame.bound_ms == 0, frame.bound_ms);
    };
    return order(a) < order(b);
  };
  std::map<decltype(key(Candidate{})), Frame*> best;
  for (Frame& frame : frames_) {
    if (frame.bound_ms == kInfinity) continue;
    Frame*& known = best[key(frame.degrees)];
    if (known == nullptr || is_better(frame, *known)) known = &frame;
  }
  std::vector<Frame*> found;
  for (const auto& [ignored, frame] : best) found.push_back(frame);
  return found;
}

std::vector<const Frame*> FrameQueue::likely_to_fit(size_t most, double memory_gib, FrameBounds& bounds) {
  constexpr size_t kMostLookedAt = 8192;
  const std::vector<Frame*> all = one_of_each();
  const size_t stride = all.size() / kMostLookedAt + 1;
  std::vector<const Frame*> found;
  std::vector<std::pair<double, const Frame*>> others;
  for (size_t i = 0; i < all.size(); i += stride) {
    Frame& frame = *all[i];
    if (frame.bound_ms == 0) frame.bound_ms = bounds.work_ms(frame.degrees);
    const double gib = bounds.least_held_gib(frame.degrees);
    if (gib <= memory_gib) {
      found.push_back(&frame);
    } else {
      others.emplace_back(gib, &frame);
    }
  }
  const auto likely_ms = [&](const Frame* frame) { return bounds.with_idle_ms(frame->degrees, frame->bound_ms); };
  std::stable_sort(found.begin(), found.end(),
                   [&](const Frame* a, const Frame* b) { return likely_ms(a) < likely_ms(b); });
  for (size_t i = most; i < found.size(); ++i) others.emplace_back(bounds.least_held_gib(found[i]->degrees), found[i]);
  if (found.size() > most) found.resize(most);
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (others.size() > most) others.resize(most);
  for (const auto& [gib, frame] : others) found.push_back(frame);
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
