#include "weft/spec/draw_batch.h"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

struct Moments {
  double mean = 0;
  double variance = 0;
  double most = 0;
};

Moments moments_of(const Distribution& distribution) {
  Moments moments{.mean = distribution.mean(), .most = distribution.max()};
  for (const auto& [value, probability] : distribution.outcomes())
    moments.variance += probability * (value - moments.mean) * (value - moments.mean);
  return moments;
}

/// Of the sum of a random number of independent pieces.
Moments moments_of(const Media& media) {
  const Moments pieces = moments_of(media.pieces_per_sample);
  const Moments size = moments_of(media.size);
  return {.mean = pieces.mean * size.mean,
          .variance = pieces.mean * size.variance + pieces.variance * size.mean * size.mean,
          .most = pieces.most * size.most};
}

}  // namespace

SampleDrawer::Values::Values(const Distribution& distribution) : outcomes_(distribution.outcomes()) {
  sums_.reserve(outcomes_.size());
  double sum = 0;
  for (const auto& [value, probability] : outcomes_) sums_.push_back(sum += probability);
}

double SampleDrawer::Values::at(double uniform) const {
  const auto found = std::upper_bound(sums_.begin(), sums_.end(), uniform);
  return found == sums_.end() ? outcomes_.back().value : outcomes_[static_cast<size_t>(found - sums_.begin())].value;
}

double SampleDrawer::draw(const Values& values) {
  // Not the standard library's distributions, whose results differ between libraries.
  constexpr double kScale = 0x1p-53;
  return values.at(static_cast<double>(generator_() >> 11) * kScale);
}

SampleLoad SampleDrawer::draw() {
  SampleLoad load;
  double embeddings = 0;
  const double tokens = draw(tokens_);
  if (model_->find(ModuleKind::kVision) != nullptr) {
    const auto images = static_cast<int64_t>(draw(images_.pieces_per_sample));
    for (int64_t i = 0; i < images; ++i) {
      const double patches = draw(images_.size);
      for (const auto& [length, count] : image_segments(model_->media, patches))
        load.vision.insert(load.vision.end(), static_cast<size_t>(count), {length, 1});
      embeddings += image_embeddings(model_->media, patches);
    }
  }
  if (model_->find(ModuleKind::kAudio) != nullptr) {
    const auto clips = static_cast<int64_t>(draw(audio_.pieces_per_sample));
    for (int64_t i = 0; i < clips; ++i) {
      const AudioLength length = audio_length(model_->media, draw(audio_.size));
      load.audio.push_back({length.positions, 1});
      embeddings += length.embeddings;
    }
  }
  const double parts = workload_->sequences_per_sample;
  load.llm.push_back({(workload_->tokens_include_media ? tokens : tokens + embeddings) / parts, parts});
  return load;
}

double expected_pieces(const Model& model, const Workload& workload, int64_t batches) {
  double pieces = 1;
  if (model.find(ModuleKind::kVision) != nullptr && workload.images.pieces_per_sample.max() > 0) {
    double an_image = 0;
    for (const auto& [patches, probability] : workload.images.size.outcomes()) {
      for (const Segment& segment : image_segments(model.media, patches)) an_image += probability * segment.count;
    }
    pieces += workload.images.pieces_per_sample.mean() * an_image;
  }
  if (model.find(ModuleKind::kAudio) != nullptr) pieces += workload.audio.pieces_per_sample.mean();
  return pieces * static_cast<double>(workload.global_batch_samples) * static_cast<double>(batches);
}

bool has_distributions(const Workload& workload) {
  const auto varies = [](const Media& media) {
    return media.pieces_per_sample.max() > 0 && !(media.pieces_per_sample.is_constant() && media.size.is_constant());
  };
  return !workload.tokens.is_constant() || varies(workload.images) || varies(workload.audio);
}

TokenSpread token_spread(const Model& model, const Workload& workload, const SampleLoad& average, ModuleKind kind) {
  const Segments& segments = average.of(kind);
  TokenSpread spread{.mean = num_tokens(segments)};
  if (kind == ModuleKind::kLlm) {
    // A segment for each number of tokens, which has the sample's sequences; counts are probabilities of these.
    const double parts = workload.sequences_per_sample;
    for (const Segment& segment : segments) {
      const double tokens = parts * segment.length;
      spread.deviation += segment.count / parts * (tokens - spread.mean) * (tokens - spread.mean);
      spread.most = std::max(spread.most, tokens);
    }
    spread.deviation = std::sqrt(spread.deviation);
    return spread;
  }
  if (model.find(kind) == nullptr) return {};
  Media media = kind == ModuleKind::kVision ? workload.images : workload.audio;
  if (kind == ModuleKind::kVision && model.media.patches_per_tile > 0) {
    std::vector<Distribution::Outcome> rows;
    for (const auto& [patches, probability] : media.size.outcomes())
      rows.push_back({num_tokens(image_segments(model.media, patches)), probability});
    media.size = Distribution::weighted(std::move(rows));
  }
  const Moments moments = moments_of(media);
  if (moments.mean == 0) return {};
  // Audio is given in seconds; its positions are so many times more.
  const double scale = spread.mean / moments.mean;
  spread.deviation = std::sqrt(moments.variance) * scale;
  spread.most = moments.most * scale;
  return spread;
}

double high_tokens(const TokenSpread& spread, double samples) {
  const double others = std::max(0.0, samples - 1);
  return std::min(samples * spread.most, spread.most + others * spread.mean + 4 * std::sqrt(others) * spread.deviation);
}

}  // namespace weft
