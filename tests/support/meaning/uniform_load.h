#pragma once

#include <numeric>

#include "weft/meaning/plan_batch.h"
#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"

// A step whose samples are all alike, as predictions of it take it.
namespace weft {

/// A sample: so many tokens of text behind one image.
struct UniformSample {
  int64_t text = 0;
  int64_t patches = 0;  ///< of the image; none for models without eyes
  int64_t window = 0;   ///< patches of a window, which must divide those of an image; 0 for models without windows

  /// A plan's workload with nothing else.
  void write_to(Workload& workload) const {
    workload.tokens = Distribution::constant(static_cast<double>(text));
    workload.tokens_include_media = false;
    if (patches == 0) return;
    workload.images = {.pieces_per_sample = Distribution::constant(1),
                       .size = Distribution::constant(static_cast<double>(patches))};
  }
};

inline EncoderLoad uniform_images(const UniformSample& sample, int64_t count) {
  EncoderLoad load{.segments = std::vector<int64_t>(static_cast<size_t>(count), sample.patches)};
  if (sample.window > 0)
    load.windows.assign(static_cast<size_t>(count * sample.patches / sample.window), sample.window);
  return load;
}

/// Every token has a target. The plan must not balance.
inline StepLoad uniform_load(const Plan& plan, const UniformSample& sample) {
  const BatchAssignment assignment = assign_batch(plan, {});
  StepLoad load{.samples = assignment.llm};
  const int64_t rows = sample.patches > 0 ? sample.patches / plan.model.media.patches_per_embedding : 0;
  const std::vector<MediaRowCounts> media(static_cast<size_t>(plan.workload.global_batch_samples), {.image = rows});
  for (const auto& [kind, shares] : assignment.encoders) {
    BesideLoad& beside = load.beside[kind];
    beside.numbers = RowNumbers(kind, shares, media);
    for (const auto& macro_batches : shares) {
      auto& loads = beside.macro_batches.emplace_back();
      for (const std::vector<int64_t>& samples : macro_batches)
        loads.push_back(uniform_images(sample, std::ssize(samples)));
    }
  }
  for (const auto& microbatches : assignment.llm) {
    auto& loads = load.llm.emplace_back();
    for (const std::vector<int64_t>& samples : microbatches) {
      MicrobatchLoad& microbatch = loads.emplace_back();
      const auto count = std::ssize(samples);
      microbatch.samples.assign(samples.size(), rows + sample.text);
      microbatch.targets.resize(static_cast<size_t>(count * (rows + sample.text)));
      std::iota(microbatch.targets.begin(), microbatch.targets.end(), 0);
      if (rows == 0) continue;
      std::vector<int64_t>& places = microbatch.places[ModuleKind::kVision];
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t row = 0; row < rows; ++row) places.push_back(i * (rows + sample.text) + row);
      }
      if (!load.beside.contains(ModuleKind::kVision))
        microbatch.media[ModuleKind::kVision] = uniform_images(sample, count);
    }
  }
  return load;
}

}  // namespace weft
