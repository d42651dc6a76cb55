#include "weft/pipeline/batch_load.h"

#include <algorithm>
#include <numeric>

#include "weft/models/listed_numbers.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

/// The first patch of each square that is merged, of rows that are not all patches.
std::vector<int64_t> merged_units(const VisionInputs& vision) {
  const std::vector<int64_t> rows = listed_numbers(vision.patch_rows);
  std::vector<int64_t> units;
  const size_t unit = vision.num_rows > 0 ? rows.size() / static_cast<size_t>(vision.num_rows) : 1;
  for (size_t row = 0; row < rows.size(); row += unit) units.push_back(rows[row]);
  return units;
}

}  // namespace

std::optional<EncoderLoad> encoder_load(ModuleKind kind, const Inputs& inputs) {
  if (kind == ModuleKind::kVision && inputs.vision) {
    return EncoderLoad{.segments = inputs.vision->frames.lengths(),
                       .windows = inputs.vision->windows.lengths(),
                       .order = listed_numbers(inputs.vision->output_order),
                       .pairs = merged_units(*inputs.vision)};
  }
  if (kind == ModuleKind::kAudio && inputs.audio) {
    return EncoderLoad{.segments = inputs.audio->chunks.lengths(),
                       .windows = {},
                       .order = {},
                       .pairs = listed_numbers(inputs.audio->pooled_rows),
                       .frames = inputs.audio->num_frames()};
  }
  return std::nullopt;
}

MicrobatchLoad microbatch_load(const Inputs& inputs, bool vision_is_beside, bool audio_is_beside) {
  MicrobatchLoad load;
  if (inputs.named) {
    // A program's samples are alike; which of their rows have targets changes nothing.
    const NamedInputs& named = *inputs.named;
    load.samples.assign(static_cast<size_t>(named.num_samples), named.rows_per_sample);
    load.targets.resize(static_cast<size_t>(std::min(named.num_targets, named.num_samples * named.rows_per_sample)));
    std::iota(load.targets.begin(), load.targets.end(), int64_t{0});
    return load;
  }
  load.samples = inputs.samples.lengths();
  load.targets = listed_numbers(inputs.target_rows);
  load.places = {{ModuleKind::kVision, listed_numbers(inputs.vision_places)},
                 {ModuleKind::kAudio, listed_numbers(inputs.audio_places)}};
  for (const ModuleKind kind : kEncoderKinds) {
    if (kind == ModuleKind::kVision ? vision_is_beside : audio_is_beside) continue;
    if (auto media = encoder_load(kind, inputs)) load.media[kind] = *std::move(media);
  }
  return load;
}

}  // namespace weft
