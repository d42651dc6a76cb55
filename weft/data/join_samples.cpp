#include "weft/data/join_samples.h"

#include <algorithm>
#include <span>

namespace weft {
namespace {

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& part) {
  all.insert(all.end(), part.begin(), part.end());
}

/// The next so many, which are taken off.
std::vector<Range> taken(std::span<const Range>& ranges, size_t count) {
  const auto own = ranges.first(count);
  ranges = ranges.subspan(count);
  return {own.begin(), own.end()};
}

}  // namespace

Sample join_samples(std::vector<Sample> parts, int64_t mel_bins) {
  Sample joined;
  size_t num_features = 0;
  for (const Sample& part : parts) {
    append(joined.ids, part.ids);
    append(joined.targets, part.targets);
    joined.segments.push_back(std::ssize(part.ids));
    append(joined.images, part.images);
    append(joined.pixels, part.pixels);
    append(joined.videos, part.videos);
    append(joined.video_pixels, part.video_pixels);
    append(joined.clip_frames, part.clip_frames);
    num_features += part.features.size();
    append(joined.load.llm, part.load.llm);
    append(joined.load.vision, part.load.vision);
    append(joined.load.audio, part.load.audio);
  }
  // Clips lie one after the other in every band.
  joined.features.reserve(num_features);
  for (int64_t band = 0; band < mel_bins; ++band) {
    for (const Sample& part : parts) {
      const int64_t frames = std::ssize(part.features) / mel_bins;
      const auto begin = part.features.begin() + band * frames;
      joined.features.insert(joined.features.end(), begin, begin + frames);
    }
  }
  return joined;
}

std::vector<SampleContent> split_content(const SampleContent& wanted, const std::vector<const Sample*>& parts) {
  std::vector<SampleContent> contents(parts.size(), {.pixels = wanted.pixels, .features = wanted.features});
  if (!wanted.ranges) return contents;
  std::span<const Range> images = wanted.ranges->images, videos = wanted.ranges->videos, clips = wanted.ranges->clips;
  for (size_t i = 0; i < parts.size(); ++i) {
    MediaRanges& ranges = contents[i].ranges.emplace();
    ranges.images = taken(images, parts[i]->images.size());
    ranges.videos = taken(videos, parts[i]->videos.size());
    ranges.clips = taken(clips, parts[i]->clip_frames.size());
  }
  return contents;
}

}  // namespace weft
