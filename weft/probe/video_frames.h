#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// Where the frames stand that are looked at.
enum class FrameSpread : uint8_t {
  kFromFirst,  ///< each at the beginning of an equal part of the video
  kToLast,     ///< from the first to the last
  kMiddles     ///< each in the middle of an equal part
};

/// Which frames of a video are looked at. Either a number of them, or so many per second of a video whose own are
/// known.
struct FrameSampling {
  FrameSpread spread = FrameSpread::kFromFirst;
  std::optional<int64_t> num_frames;
  std::optional<double> frames_per_second;
  int64_t min_frames = 4;
  int64_t max_frames = 768;
  int64_t temporal_patch = 2;
};

/// The numbers of the frames, evenly spread, of a video of `total` frames. Without a number or a rate, all of them.
/// `video_frames_per_second` is needed for sampling by rate.
Result<std::vector<int64_t>> sampled_frames(const FrameSampling& sampling, int64_t total,
                                            std::optional<double> video_frames_per_second, std::string_view source);

/// Frames per second of a video that says nothing of them.
inline constexpr double kUnknownFrameRate = 24;
/// Frames per second of what was sampled.
double sampled_rate(int64_t num_sampled, int64_t total, std::optional<double> video_frames_per_second);

/// Seconds between two grids of a video, which positions in time are counted by.
double seconds_per_grid(int64_t temporal_patch, double frames_per_second);

/// When each patch of frames was taken, in seconds: in the middle between its first and its last frame.
std::vector<double> patch_seconds(const std::vector<int64_t>& frames, int64_t temporal_patch, double frames_per_second);

}  // namespace weft
