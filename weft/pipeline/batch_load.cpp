#include "weft/pipeline/batch_load.h"

namespace weft {
namespace {

std::vector<int64_t> listed(const at::Tensor& numbers) {
  if (!numbers.defined()) return {};
  const at::Tensor here = numbers.cpu().contiguous();
  return {here.data_ptr<int64_t>(), here.data_ptr<int64_t>() + here.numel()};
}

}  // namespace

std::optional<EncoderLoad> encoder_load(ModuleKind kind, const Inputs& inputs) {
  if (kind == ModuleKind::kVision && inputs.vision) {
    return EncoderLoad{.segments = inputs.vision->frames.lengths(),
                       .windows = inputs.vision->windows.lengths(),
                       .order = listed(inputs.vision->output_order),
                       .pairs = {}};
  }
  if (kind == ModuleKind::kAudio && inputs.audio) {
    return EncoderLoad{.segments = inputs.audio->chunks.lengths(),
                       .windows = {},
                       .order = {},
                       .pairs = listed(inputs.audio->pooled_rows),
                       .frames = inputs.audio->frames.size(0)};
  }
  return std::nullopt;
}

MicrobatchLoad microbatch_load(const Inputs& inputs, bool vision_is_beside, bool audio_is_beside) {
  MicrobatchLoad load;
  load.samples = inputs.samples.lengths();
  load.targets = listed(inputs.target_rows);
  load.places = {{ModuleKind::kVision, listed(inputs.vision_places)},
                 {ModuleKind::kAudio, listed(inputs.audio_places)}};
  for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio}) {
    if (kind == ModuleKind::kVision ? vision_is_beside : audio_is_beside) continue;
    if (auto media = encoder_load(kind, inputs)) load.media[kind] = *std::move(media);
  }
  return load;
}

}  // namespace weft
