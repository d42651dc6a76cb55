#include "weft/models/network.h"

#include <ATen/core/grad_mode.h>

#include "weft/base/check.h"
#include "weft/layers/recompute.h"

namespace weft {

Result<Network> Network::create(const Model& model, ParameterMaker& maker) {
  Network network;
  WEFT_TRY(network.numbers_, numbers_to_run(model));
  for (const Module& module : model.modules) {
    auto made = make_network(module, network.numbers_, BlockRange{}, maker);
    if (module.kind == ModuleKind::kLlm) {
      network.decoder_ = std::dynamic_pointer_cast<Decoder>(made);
    } else {
      network.encoders_.push_back({module.kind, std::move(made)});
    }
  }
  WEFT_CHECK(network.decoder_ != nullptr, "the llm of {} is no decoder", model.name);
  network.type_ = network.decoder_->layer(0).attention.qkv->value.scalar_type();
  return network;
}

const ModuleNetwork* Network::find(ModuleKind kind) const {
  if (kind == ModuleKind::kLlm) return decoder_.get();
  for (const Part& encoder : encoders_) {
    if (encoder.kind == kind) return encoder.network.get();
  }
  return nullptr;
}

at::Tensor Network::run_layers(const ModuleNetwork& network, at::Tensor x, const Inputs& inputs, const NetworkRun& run,
                               KvCache* cache) const {
  LayerPass pass = network.begin(inputs, type_);
  pass.cache = cache;
  for (int64_t index = 0; index < network.num_layers(); ++index) {
    // A layer that runs again needs the draws until then.
    const auto layer = [&network, index, pass, context = run.context, draws = inputs.draws](const at::Tensor& rows) {
      return network.run_layer(index, rows, pass, context);
    };
    const at::Tensor& anchor = network.layer(index).attention.qkv->value;
    x = run.recomputes && at::GradMode::is_enabled() ? recomputed(layer, x, anchor) : layer(x);
  }
  return x;
}

at::Tensor Network::encode(ModuleKind encoder, const Inputs& inputs, const NetworkRun& run) const {
  const ModuleNetwork& network = *find(encoder);
  const at::Tensor x = run_layers(network, network.enter(inputs, {}, run.context), inputs, run);
  return network.leave(x, inputs, run.context, run.context);
}

at::Tensor Network::hidden(const Inputs& inputs, const NetworkRun& run, KvCache* cache) const {
  std::vector<MediaRows> media;
  for (const auto& [kind, encoder] : encoders_) {
    if (inputs.has_data(kind)) media.push_back({inputs.places(kind), encode(kind, inputs, run)});
  }
  NetworkRun text = run;
  text.context.dropout = inputs.draws.get();
  return run_layers(*decoder_, decoder_->enter(inputs, media, text.context), inputs, text, cache);
}

at::Tensor Network::logits(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->logits(hidden(inputs, run), run.context);
}

at::Tensor Network::loss_sum(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->loss_sum(hidden(inputs, run), inputs.target_rows, inputs.targets, run.context);
}

}  // namespace weft
