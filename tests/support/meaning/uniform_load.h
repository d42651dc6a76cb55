#pragma once

#include <numeric>

#include "weft/meaning/plan_batch.h"
#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"
#include "weft/spec/sample_load.h"

// A step whose samples are all alike, as predictions of it take it.
namespace weft {

/// A sample: so many tokens of text, among which the rows of one image and of one clip of sound are spread.
struct UniformSample {
  int64_t text = 0;
  int64_t patches = 0;  ///< of the image; none for models without eyes
  int64_t window = 0;   ///< patches of a window, which must divide those of an image; 0 for models without windows
  double clip_s = 0;    ///< of sound; none for models without ears
  int64_t chunk = 0;    ///< positions of a chunk of sound, which must divide those of a clip

  /// A plan's workload with nothing else.
  void write_to(Workload& workload) const {
    workload.tokens = Distribution::constant(static_cast<double>(text));
    workload.tokens_include_media = false;
    if (patches > 0)
      workload.images = {.pieces_per_sample = Distribution::constant(1),
                         .size = Distribution::constant(static_cast<double>(patches))};
    if (clip_s > 0)
      workload.audio = {.pieces_per_sample = Distribution::constant(1), .size = Distribution::constant(clip_s)};
  }

  /// Rows inside a module for one sample.
  int64_t rows_inside(const Model& model, ModuleKind kind) const {
    return kind == ModuleKind::kVision ? patches : static_cast<int64_t>(audio_length(model.media, clip_s).positions);
  }
  /// Rows that an encoder gives for one.
  int64_t rows_of(const Model& model, ModuleKind kind) const {
    if (kind == ModuleKind::kVision) return patches > 0 ? patches / model.media.patches_per_embedding : 0;
    return clip_s > 0 ? static_cast<int64_t>(audio_length(model.media, clip_s).embeddings) : 0;
  }
};

/// What an encoder takes of so many samples.
inline EncoderLoad uniform_media(const Model& model, const UniformSample& sample, ModuleKind kind, int64_t count) {
  EncoderLoad load;
  const int64_t rows = count * sample.rows_inside(model, kind);
  if (kind == ModuleKind::kVision) {
    load.segments.assign(static_cast<size_t>(count), sample.patches);
    if (sample.window > 0) load.windows.assign(static_cast<size_t>(rows / sample.window), sample.window);
    return load;
  }
  load.segments.assign(static_cast<size_t>(rows / sample.chunk), sample.chunk);
  for (int64_t row = 0; row < rows; row += model.media.audio_positions_per_embedding) load.pairs.push_back(row);
  load.frames = rows * model.media.mel_frames_per_audio_position;
  return load;
}

/// Places for an image's rows among a sample's tokens: one after another a golden section of the sample apart, so that
/// any run of rows lies evenly over any run of tokens, as prices take it.
inline std::vector<int64_t> spread_places(int64_t rows, int64_t tokens) {
  auto step = static_cast<int64_t>(0.618034 * static_cast<double>(tokens));
  while (std::gcd(step, tokens) != 1) ++step;
  std::vector<int64_t> places;
  for (int64_t row = 0; row < rows; ++row) places.push_back(row * step % tokens);
  return places;
}

/// Every token has a target. The plan must not balance.
inline StepLoad uniform_load(const Plan& plan, const UniformSample& sample) {
  const BatchAssignment assignment = assign_batch(plan, {});
  StepLoad load{.samples = assignment.llm};
  const int64_t image_rows = sample.rows_of(plan.model, ModuleKind::kVision);
  const int64_t clip_rows = sample.rows_of(plan.model, ModuleKind::kAudio);
  const std::vector<MediaRowCounts> media(static_cast<size_t>(plan.workload.global_batch_samples),
                                          {.image = image_rows, .audio = clip_rows});
  for (const auto& [kind, shares] : assignment.encoders) {
    BesideLoad& beside = load.beside[kind];
    beside.numbers = RowNumbers(kind, shares, media);
    for (const auto& macro_batches : shares) {
      auto& loads = beside.macro_batches.emplace_back();
      for (const std::vector<int64_t>& samples : macro_batches)
        loads.push_back(uniform_media(plan.model, sample, kind, std::ssize(samples)));
    }
  }
  const int64_t tokens = sample.text + image_rows + clip_rows;
  const std::vector<int64_t> places = spread_places(image_rows + clip_rows, tokens);
  for (const auto& microbatches : assignment.llm) {
    auto& loads = load.llm.emplace_back();
    for (const std::vector<int64_t>& samples : microbatches) {
      MicrobatchLoad& microbatch = loads.emplace_back();
      const auto count = std::ssize(samples);
      microbatch.samples.assign(samples.size(), tokens);
      microbatch.targets.resize(static_cast<size_t>(count * tokens));
      std::iota(microbatch.targets.begin(), microbatch.targets.end(), 0);
      auto begin = places.begin();
      for (const auto& [kind, rows] :
           {std::pair{ModuleKind::kVision, image_rows}, std::pair{ModuleKind::kAudio, clip_rows}}) {
        if (rows == 0) continue;
        for (int64_t i = 0; i < count; ++i) {
          for (auto place = begin; place != begin + rows; ++place)
            microbatch.places[kind].push_back(i * tokens + *place);
        }
        begin += rows;
        if (!load.beside.contains(kind)) microbatch.media[kind] = uniform_media(plan.model, sample, kind, count);
      }
    }
  }
  return load;
}

}  // namespace weft
