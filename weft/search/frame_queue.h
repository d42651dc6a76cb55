#pragma once

#include <cstdint>
#include <vector>

#include "weft/search/deadline.h"
#include "weft/search/frame_bounds.h"

namespace weft {

/// Candidates with the same degrees of the llm, and what no one of them can be faster than.
struct Frame {
  Candidate degrees;
  int64_t size = 0;
  double bound_ms = 0;      ///< 0: nothing is known
  bool is_refined = false;  ///< the bound knows what the schedules leave idle
  bool is_probed = false;
};

/// Every frame of a space that holds a candidate, without bounds.
std::vector<Frame> list_frames(const Plan& problem, const PlanSpace& space);

/// Frames in the order of their bounds. Bounds are refined as they come to the front: most frames are ruled out before.
class FrameQueue {
 public:
  explicit FrameQueue(std::vector<Frame> frames);

  size_t size() const { return frames_.size(); }
  const Frame& operator[](size_t place) const { return frames_[order_[place]]; }

  /// The frame with the least bound from `begin` on, moved there; refined where its bound is below the limit and there
  /// is time.
  Frame& least_from(size_t begin, double limit_ms, FrameBounds& bounds, const Deadline& deadline = {});

  /// The numbers of pipeline ranks that frames have, those of the least bounds first.
  std::vector<int64_t> pipelines() const;
  /// Of the frames with so many pipeline ranks that were not probed, the one with the least bound, refined; nothing
  /// where that is not below the limit, or the time is over. The order is that of before until sort().
  Frame* least_with(int64_t pp, double limit_ms, FrameBounds& bounds, const Deadline& deadline);
  void sort();
  /// As if no frame was probed.
  void forget_probes();

  /// At most so many frames that are likely to fit (FrameBounds::least_held_gib), those that are likely to be fastest
  /// first, then as many of those whose ranks hold least. Of frames that hold about as much it looks at one.
  std::vector<const Frame*> likely_to_fit(size_t most, double memory_gib, FrameBounds& bounds);

 private:
  static void refine(Frame& frame, double limit_ms, FrameBounds& bounds);
  std::vector<Frame*> one_of_each();

  std::vector<Frame> frames_;
  std::vector<uint32_t> order_;  // places in frames_
};

}  // namespace weft
