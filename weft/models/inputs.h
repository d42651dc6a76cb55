#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/families/numbers.h"
#include "weft/layers/dropout.h"
#include "weft/models/audio/audio_inputs.h"
#include "weft/models/named_inputs.h"
#include "weft/models/vision/vision_inputs.h"
#include "weft/program/module.h"

namespace weft {

/// What dropout in a step depends on.
struct StepDraws {
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples;  ///< by sample of a batch, its number among all samples of the step
  bool of_encoders = true;       ///< whether rows of media are to have numbers, too
};

/// A batch as it comes from a file or a loader: tensors under the names that Hugging Face's processors give them. All
/// are on the CPU; samples and media are packed, one after the other, without padding.
struct RawInputs {
  at::Tensor input_ids;          ///< int64 [tokens]
  std::vector<int64_t> lengths;  ///< tokens of each sample
  at::Tensor targets;            ///< int64 [tokens], -100 where there is none; may be undefined
  /// fp32 [patches, patch elements] of the images, or [tiles, channels, height, width] without grids; may be undefined.
  at::Tensor pixel_values;
  std::vector<Grid> image_grids;
  at::Tensor pixel_values_videos;  ///< the same of the videos
  std::vector<Grid> video_grids;
  std::vector<double> video_frame_seconds;
  at::Tensor input_features;                      ///< fp32 [mel bins, frames]; may be undefined
  std::vector<int64_t> audio_frames;              ///< of each clip
  bool has_audio_in_video = false;                ///< every video's sound is interleaved with it
  std::optional<StepDraws> draws = std::nullopt;  ///< where the batch is trained with; nothing is dropped else
};

/// Reads tensors by their names; a wrong type or shape, or a name that nothing reads, is an error that names it.
Result<RawInputs> raw_inputs(std::map<std::string, at::Tensor> tensors);

/// Images that are given as tiles, as patches with a grid for each.
Result<RawInputs> with_patches(const ModelNumbers& numbers, const RawInputs& raw);

struct ContextShare;

/// Rows of a batch in a module, on all tensor-parallel ranks together.
struct RowCounts {
  int64_t inside = 0;   ///< between its blocks
  int64_t outside = 0;  ///< of what it gives
};

/// A batch that fits a model: checked, with positions, and in the order in which modules take it.
struct Inputs {
  at::Tensor ids;        ///< [tokens]
  at::Tensor positions;  ///< [1 or 3, tokens]
  PackedSegments samples;
  at::Tensor target_rows;    ///< rows that have a target
  at::Tensor targets;        ///< of those
  at::Tensor vision_places;  ///< the tokens that the vision encoder's rows replace, images first
  at::Tensor audio_places;
  std::optional<VisionInputs> vision;  ///< nothing: no images and videos
  std::optional<AudioInputs> audio;
  int64_t position_delta = 0;  ///< of the last sample, see RopeIndex
  /// Where this is a rank's share of a batch: who has the rest. Samples and what encoders call frames, windows and
  /// chunks are then those of all shares together.
  std::shared_ptr<const ContextShare> context;
  std::shared_ptr<const DropoutDraws> draws = nullptr;  ///< of the tokens; nothing: nothing is dropped
  std::shared_ptr<const NamedInputs> named = nullptr;   ///< all there is, where the model is a user's own program

  /// Of the rows of a module; nothing: nothing is dropped.
  std::shared_ptr<const DropoutDraws> draws_of(ModuleKind module) const;
  /// The tokens that an encoder's rows replace.
  const at::Tensor& places(ModuleKind encoder) const {
    return encoder == ModuleKind::kVision ? vision_places : audio_places;
  }
  /// Whether there is anything here for a module.
  bool has_data(ModuleKind module) const {
    return module == ModuleKind::kVision ? vision.has_value() : module == ModuleKind::kAudio ? audio.has_value() : true;
  }
  /// Of a module that has data.
  RowCounts row_counts(ModuleKind module) const;
  int64_t num_targets() const { return named ? named->num_targets : targets.defined() ? targets.size(0) : 0; }
  bool has_targets() const { return named || targets.defined(); }
  /// On a device, pixels and mel frames in a type.
  Inputs to(const at::TensorOptions& options) const;
  /// The same for later: already in the type, and in memory that a GPU reads by itself while its host goes on.
  Inputs staged(const at::TensorOptions& options) const;
};

/// Which encoders' inputs are wanted. Of the others grids and lengths are enough: they say which rows go where.
struct WantedMedia {
  bool vision = true;
  bool audio = true;
  bool has_content = true;  ///< else pixels and mel frames are put in later, and none are held
};

/// Token ids out of range, media that do not match their tokens, and whatever else does not fit the model: an error
/// that names it.
Result<Inputs> prepare_inputs(const ModelNumbers& numbers, int64_t vocabulary, const RawInputs& raw,
                              const WantedMedia& wanted = {});

}  // namespace weft
