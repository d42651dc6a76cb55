#include "weft/models/network.h"

#include <ATen/core/grad_mode.h>

#include "weft/layers/recompute.h"

namespace weft {
namespace {

/// Runs a layer, or runs it so that it is run again by the backward.
template <typename Layer>
at::Tensor run_layer(const Layer& layer, const at::Tensor& x, const at::Tensor& anchor, bool recomputes) {
  return recomputes && at::GradMode::is_enabled() ? recomputed(layer, x, anchor) : layer(x);
}

}  // namespace

Result<Network> Network::create(const Model& model, ParameterMaker& maker) {
  Network network;
  WEFT_TRY(network.numbers_, read_numbers(model));
  const ModelNumbers& numbers = network.numbers_;
  const std::string& prefix = numbers.weight_prefix;
  if (const Module* module = model.find(ModuleKind::kVision)) {
    network.vision_ = std::make_shared<VisionEncoder>(*module, *numbers.vision, prefix, BlockRange{}, maker);
  }
  if (const Module* module = model.find(ModuleKind::kAudio)) {
    network.audio_ = std::make_shared<AudioEncoder>(*module, *numbers.audio, prefix, BlockRange{}, maker);
  }
  network.decoder_ = std::make_shared<Decoder>(model.modules.back(), numbers.text, model.has_tied_embeddings, prefix,
                                               BlockRange{}, maker);
  network.type_ = network.decoder_->layer(0).attention.qkv->value.scalar_type();
  return network;
}

at::Tensor Network::encode_vision(const VisionInputs& inputs, const NetworkRun& run) const {
  at::Tensor x = vision_->embed_patches(inputs, run.context);
  const RotaryTable rotary = vision_->rotary(inputs.positions, type_);
  for (int64_t index = 0; index < vision_->num_layers(); ++index) {
    const auto layer = [this, index, inputs, rotary, context = run.context](const at::Tensor& rows) {
      return vision_->layer(index, rows, inputs, rotary, context);
    };
    x = run_layer(layer, x, vision_->layers()[static_cast<size_t>(index)].attention.qkv->value, run.recomputes);
  }
  return vision_->merge(x, inputs, run.context, run.context);
}

at::Tensor Network::encode_audio(const AudioInputs& inputs, const NetworkRun& run) const {
  at::Tensor x = audio_->convolve(inputs, run.context);
  for (int64_t index = 0; index < audio_->num_layers(); ++index) {
    const auto layer = [this, index, inputs, context = run.context](const at::Tensor& rows) {
      return audio_->layer(index, rows, inputs, context);
    };
    x = run_layer(layer, x, audio_->layers()[static_cast<size_t>(index)].attention.qkv->value, run.recomputes);
  }
  return audio_->pool(x, inputs, run.context, run.context);
}

at::Tensor Network::hidden(const Inputs& inputs, const NetworkRun& run, KvCache* cache) const {
  std::vector<MediaRows> media;
  if (inputs.vision) media.push_back({inputs.vision_places, encode_vision(*inputs.vision, run)});
  if (inputs.audio) media.push_back({inputs.audio_places, encode_audio(*inputs.audio, run)});
  at::Tensor x = decoder_->embed_tokens(inputs.ids, media, run.context);
  const RotaryTable rotary = decoder_->rotary(inputs.positions, type_);
  for (int64_t index = 0; index < decoder_->num_layers(); ++index) {
    const auto layer = [this, index, samples = inputs.samples, rotary, cache,
                        context = run.context](const at::Tensor& rows) {
      return decoder_->layer(index, rows, {.segments = samples, .rotary = rotary, .cache = cache, .layer = index},
                             context);
    };
    x = run_layer(layer, x, decoder_->layer(index).attention.qkv->value, run.recomputes);
  }
  return x;
}

at::Tensor Network::logits(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->logits(hidden(inputs, run), run.context);
}

at::Tensor Network::loss_sum(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->loss_sum(hidden(inputs, run), inputs.target_rows, inputs.targets, run.context);
}

}  // namespace weft
