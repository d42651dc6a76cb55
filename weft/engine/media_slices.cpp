#include "weft/engine/media_slices.h"

#include <algorithm>
#include <array>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/models/context_inputs.h"

namespace weft {
namespace {

std::vector<Grid> grids_of(const std::vector<Sample>& samples) {
  std::vector<Grid> grids;
  for (const Sample& sample : samples) {
    for (const ImageGrid& image : sample.images) grids.push_back({1, image.rows, image.columns});
  }
  for (const Sample& sample : samples) {
    for (const VideoGrid& video : sample.videos) grids.push_back({video.frames, video.frame.rows, video.frame.columns});
  }
  return grids;
}

/// The last of media whose first row is not behind this one.
template <typename Media>
auto& medium_of(Media& media, int64_t row) {
  const auto behind = std::upper_bound(media.begin(), media.end(), row,
                                       [](int64_t wanted, const auto& medium) { return wanted < medium.first; });
  return *(behind - 1);
}

}  // namespace

MediaSlices::MediaSlices(const TrainingRank& rank, const std::vector<Sample>& samples, const Inputs& inputs)
    : contents_(samples.size(), SampleContent{.pixels = false, .features = false, .ranges = MediaRanges()}) {
  for (size_t i = 0; i < samples.size(); ++i) {
    contents_[i].ranges->images.resize(samples[i].images.size());
    contents_[i].ranges->videos.resize(samples[i].videos.size());
    contents_[i].ranges->clips.resize(samples[i].clip_frames.size());
  }
  const auto vision = rank.entry_share(ModuleKind::kVision), audio = rank.entry_share(ModuleKind::kAudio);
  if (inputs.vision && vision) choose_patches(rank.numbers(), samples, inputs, *vision);
  if (inputs.audio && audio) choose_frames(samples, inputs, *audio);
}

void MediaSlices::choose_patches(const ModelNumbers& numbers, const std::vector<Sample>& samples, const Inputs& inputs,
                                 TrainingRank::EntryShare share) {
  int64_t first = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t k = 0; k < samples[i].images.size(); ++k) {
      pictures_.push_back({.sample = i, .number = k, .first = first});
      first += samples[i].images[k].num_patches();
    }
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    for (size_t k = 0; k < samples[i].videos.size(); ++k) {
      pictures_.push_back({.sample = i, .number = k, .is_video = true, .first = first});
      first += samples[i].videos[k].num_patches();
    }
  }
  rows_ = pixel_rows_of(*inputs.vision, numbers.vision->merge_size, share.num_ranks, share.rank);
  auto layout = vision_layout(*numbers.vision, grids_of(samples), "pixel_values");
  WEFT_CHECK(layout.ok(), "{}", layout.error().message());
  patches_.assign(layout->patches.begin() + rows_.begin, layout->patches.begin() + rows_.end);
  for (const int64_t patch : patches_) {
    if (patch < 0) continue;
    Medium& medium = medium_of(pictures_, patch);
    const int64_t own = patch - medium.first;
    medium.read = medium.read.empty() ? Range{own, own + 1}
                                      : Range{std::min(medium.read.begin, own), std::max(medium.read.end, own + 1)};
  }
  std::vector<std::array<int64_t, 2>> offsets(samples.size());
  for (Medium& medium : pictures_) {
    SampleContent& content = contents_[medium.sample];
    content.pixels = true;
    (medium.is_video ? content.ranges->videos : content.ranges->images)[medium.number] = medium.read;
    int64_t& offset = offsets[medium.sample][medium.is_video ? 1 : 0];
    medium.offset = offset;
    offset += medium.read.size();
  }
}

void MediaSlices::choose_frames(const std::vector<Sample>& samples, const Inputs& inputs,
                                TrainingRank::EntryShare share) {
  frames_ = mel_frames_of(*inputs.audio, share.num_ranks, share.rank);
  int64_t first = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    int64_t offset = 0;
    for (size_t k = 0; k < samples[i].clip_frames.size(); ++k) {
      const int64_t count = samples[i].clip_frames[k];
      const Range own = intersection(frames_, {first, first + count});
      Medium medium{.sample = i, .number = k, .first = first, .offset = offset};
      if (!own.empty()) medium.read = {own.begin - first, own.end - first};
      contents_[i].features = true;
      contents_[i].ranges->clips[k] = medium.read;
      clips_.push_back(medium);
      offset += medium.read.size();
      first += count;
    }
  }
}

void MediaSlices::fill(const std::vector<Sample>& samples, Inputs& inputs) const {
  if (!pictures_.empty()) {
    const int64_t width = inputs.vision->pixels.size(1);
    at::Tensor pixels = at::zeros({rows_.size(), width}, at::kFloat);
    float* to = pixels.data_ptr<float>();
    for (const int64_t patch : patches_) {
      if (patch >= 0) {
        const Medium& medium = medium_of(pictures_, patch);
        const Sample& sample = samples[medium.sample];
        const std::vector<float>& from = medium.is_video ? sample.video_pixels : sample.pixels;
        const auto row = from.begin() + (medium.offset + patch - medium.first - medium.read.begin) * width;
        std::copy(row, row + width, to);
      }
      to += width;
    }
    inputs.vision->pixels = std::move(pixels);
    inputs.vision->held = rows_;
  }
  if (clips_.empty()) return;
  const int64_t bins = inputs.audio->frames.size(1);
  at::Tensor frames = at::empty({frames_.size(), bins}, at::kFloat);
  float* to = frames.data_ptr<float>();
  for (const Medium& medium : clips_) {
    const std::vector<float>& from = samples[medium.sample].features;
    const int64_t length = std::ssize(from) / bins;
    for (int64_t frame = 0; frame < medium.read.size(); ++frame) {
      for (int64_t band = 0; band < bins; ++band)
        *to++ = from[static_cast<size_t>(band * length + medium.offset + frame)];
    }
  }
  inputs.audio->frames = std::move(frames);
  inputs.audio->held = frames_;
}

}  // namespace weft
