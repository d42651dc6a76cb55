#pragma once

#include "weft/spec/model.h"
#include "weft/spec/segments.h"
#include "weft/spec/workload.h"

namespace weft {

/// What one sample asks of each module.
struct SampleLoad {
  Segments vision;  ///< a segment an image or tile, in rows: patches, and a tile's row in front of them
  Segments audio;   ///< a segment a clip, in positions
  Segments llm;     ///< one segment, or Workload::sequences_per_sample, in tokens

  const Segments& of(ModuleKind kind) const;
};

/// The mean over the workload's distributions: segments carry expected counts. Fails when the workload does not fit the
/// model, as with media that it has no encoder for.
Result<SampleLoad> average_sample(const Model& model, const Workload& workload);

/// The vision encoder's sequences for an image of so many patches: one or, where a model takes tiles of one size, one
/// for each of the fewest tiles that have as many patches.
Segments image_segments(const MediaGeometry& media, double patches);
/// What it gives for that image.
double image_embeddings(const MediaGeometry& media, double patches);

/// Positions of the audio encoder, and embeddings that it hands on, for a clip.
struct AudioLength {
  double positions = 0;
  double embeddings = 0;
};
AudioLength audio_length(const MediaGeometry& media, double seconds);

/// A workload that freezes all of a model.
std::optional<Error> find_nothing_to_train(const Model& model, const Workload& workload);

/// FLOPs of a whole training step of the workload's global batch, made of samples like this one: forward, and backward
/// as far as it has to go. Fails when nothing is left to train.
Result<double> training_step_flops(const Model& model, const Workload& workload, const SampleLoad& sample);

}  // namespace weft
