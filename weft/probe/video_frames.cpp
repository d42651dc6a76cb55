#include "weft/probe/video_frames.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

/// In single precision after the product, as torch.arange has it. `count` is given and not made of `step`: the quotient
/// of a quotient can be a little above it, and then torch.arange ends with a number that no frame has.
std::vector<int64_t> evenly_spaced(double first, double step, int64_t count, int64_t total) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto number = static_cast<float>(first + step * static_cast<double>(i));
    numbers[i] = std::min(static_cast<int64_t>(number), total - 1);
  }
  return numbers;
}

/// Rounded, as numpy's linspace has them.
std::vector<int64_t> from_first_to_last(int64_t total, int64_t wanted) {
  std::vector<int64_t> numbers(static_cast<size_t>(wanted));
  const double step = wanted > 1 ? static_cast<double>(total - 1) / static_cast<double>(wanted - 1) : 0;
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int64_t>(std::nearbyint(static_cast<double>(i) * step));
  if (wanted > 1) numbers.back() = total - 1;
  return numbers;
}

}  // namespace

Result<std::vector<int64_t>> sampled_frames(const FrameSampling& sampling, int64_t total,
                                            std::optional<double> video_frames_per_second, std::string_view source) {
  const auto patch = static_cast<double>(sampling.temporal_patch), frames = static_cast<double>(total);
  double wanted = frames;
  if (sampling.num_frames) {
    // Other spreads leave it to the patches to repeat a frame.
    wanted = static_cast<double>(*sampling.num_frames);
    if (sampling.spread == FrameSpread::kFromFirst) wanted = std::nearbyint(wanted / patch) * patch;
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
  const double step = frames / wanted;
  const auto count = static_cast<int64_t>(wanted);
  if (sampling.spread == FrameSpread::kToLast) return from_first_to_last(total, count);
  return evenly_spaced(sampling.spread == FrameSpread::kMiddles ? step / 2 : 0, step, count, total);
}

double sampled_rate(int64_t num_sampled, int64_t total, std::optional<double> video_frames_per_second) {
  if (!video_frames_per_second) return kUnknownFrameRate;
  return static_cast<double>(num_sampled) / static_cast<double>(total) * *video_frames_per_second;
}

double seconds_per_grid(int64_t temporal_patch, double frames_per_second) {
  return static_cast<double>(temporal_patch) / frames_per_second;
}

std::vector<double> patch_seconds(const std::vector<int64_t>& frames, int64_t temporal_patch,
                                  double frames_per_second) {
  std::vector<double> seconds;
  for (int64_t first = 0; first < std::ssize(frames); first += temporal_patch) {
    const int64_t last = std::min(first + temporal_patch, std::ssize(frames)) - 1;
    const double begin = static_cast<double>(frames[static_cast<size_t>(first)]) / frames_per_second;
    const double end = static_cast<double>(frames[static_cast<size_t>(last)]) / frames_per_second;
    seconds.push_back((begin + end) / 2);
  }
  return seconds;
}

}  // namespace weft
