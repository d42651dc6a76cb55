#include "weft/probe/video_frames.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace weft {

Result<std::vector<int64_t>> sampled_frames(const FrameSampling& sampling, int64_t total,
                                            std::optional<double> video_frames_per_second, std::string_view source) {
  const auto patch = static_cast<double>(sampling.temporal_patch), frames = static_cast<double>(total);
  double wanted = frames;
  if (sampling.num_frames) {
    wanted = std::nearbyint(static_cast<double>(*sampling.num_frames) / patch) * patch;
  } else if (sampling.frames_per_second) {
    if (!video_frames_per_second) {
      return Error{.source = std::string(source),
                   .problem = "is sampled by frames per second, but how many it has itself is not known",
                   .advice = "Say the video's frames per second, or sample a number of frames."};
    }
    const double most = std::floor(std::min(static_cast<double>(sampling.max_frames), frames) / patch) * patch;
    wanted = frames / *video_frames_per_second * *sampling.frames_per_second;
    wanted = std::min({std::max(wanted, static_cast<double>(sampling.min_frames)), most, frames});
    wanted = std::floor(wanted / patch) * patch;
  }
  if (wanted < 1 || wanted > frames) {
    return Error{.source = std::string(source),
                 .problem = fmt::format("has {} frames, of which {:.0f} were to be taken", total, wanted),
                 .advice = "Take fewer frames, or leave the video out."};
  }
  // In float32 after the product, as torch.arange has it.
  const double step = frames / wanted;
  std::vector<int64_t> numbers(static_cast<size_t>(std::ceil(frames / step)));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int64_t>(static_cast<float>(step * static_cast<double>(i)));
  }
  return numbers;
}

double sampled_rate(int64_t num_sampled, int64_t total, std::optional<double> video_frames_per_second) {
  constexpr double kUnknown = 24;
  if (!video_frames_per_second) return kUnknown;
  return static_cast<double>(num_sampled) / static_cast<double>(total) * *video_frames_per_second;
}

double seconds_per_grid(int64_t temporal_patch, double frames_per_second) {
  return static_cast<double>(temporal_patch) / frames_per_second;
}

}  // namespace weft
