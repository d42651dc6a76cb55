#include "weft/models/network.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>

#include "weft/base/check.h"
#include "weft/layers/recompute.h"
#include "weft/program/module_kinds.h"

namespace weft {

Result<Network> Network::create(const Model& model, ParameterMaker& maker) {
  if (model.numbers.program)
    return Error{.source = "model " + model.name,
                 .field = "model_type",
                 .problem = "is a program of its user, which has no form beside its checkpoints",
                 .advice = "weft train and weft eval go on from them, by any plan."};
  if (has_layer_programs(model))
    return Error{.source = "model " + model.name,
                 .field = "strategy",
                 .problem = "is given for its layers, which are then spread over ranks",
                 .advice = "Run it by a plan, or without a strategy."};
  Network network;
  WEFT_TRY(network.numbers_, numbers_to_run(model));
  for (const Module& module : model.modules) {
    auto made = make_network(module, network.numbers_, BlockRange{}, maker);
    if (module.kind == ModuleKind::kLlm) {
      network.decoder_ = std::dynamic_pointer_cast<Decoder>(made);
    } else {
      network.encoders_.push_back({module.kind, std::move(made), branch_layers(module), module.output_parts});
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

LayerRows Network::run_layers(const ModuleNetwork& network, at::Tensor x, const std::vector<int64_t>& branches,
                              const std::vector<AddedRows>& added, const Inputs& inputs, const NetworkRun& run,
                              KvCache* cache) const {
  LayerPass pass = network.begin(inputs, type_);
  pass.cache = cache;
  LayerRows rows;
  std::vector<std::shared_ptr<const DropoutDraws>> draws;
  for (const ModuleKind kind : kModuleKinds) draws.push_back(inputs.draws_of(kind));
  for (int64_t index = 0; index < network.num_layers(); ++index) {
    // A layer that runs again needs the draws until then.
    const auto layer = [&network, index, pass, context = run.context, draws](const at::Tensor& own) {
      return network.run_layer(index, own, pass, context);
    };
    const at::Tensor& anchor = network.layer(index).attention.qkv->value;
    x = run.recomputes && at::GradMode::is_enabled() ? recomputed(layer, x, anchor) : layer(x);
    for (const AddedRows& media : added) x = media.behind(index, x);
    if (std::find(branches.begin(), branches.end(), index) != branches.end()) rows.branches.push_back(x);
  }
  rows.last = std::move(x);
  return rows;
}

at::Tensor Network::encode(const Part& encoder, const Inputs& inputs, const NetworkRun& given) const {
  const ModuleNetwork& network = *encoder.network;
  const auto draws = inputs.draws_of(encoder.kind);
  NetworkRun run = given;
  run.context.dropout = draws.get();
  const LayerRows rows = run_layers(network, network.enter(inputs, {}, run.context), encoder.branches, {}, inputs, run);
  return network.leave(rows, inputs, run.context, run.context);
}

at::Tensor Network::encode(ModuleKind kind, const Inputs& inputs, const NetworkRun& run) const {
  const auto encoder =
      std::find_if(encoders_.begin(), encoders_.end(), [&](const Part& part) { return part.kind == kind; });
  WEFT_CHECK(encoder != encoders_.end(), "there is no {} encoder", name_of(kind));
  return encode(*encoder, inputs, run);
}

at::Tensor Network::hidden(const Inputs& inputs, const NetworkRun& run, KvCache* cache) const {
  std::vector<MediaRows> media;
  std::vector<AddedRows> added;
  for (const Part& encoder : encoders_) {
    if (!inputs.has_data(encoder.kind)) continue;
    const at::Tensor& places = inputs.places(encoder.kind);
    const at::Tensor rows = encode(encoder, inputs, run);
    std::vector<at::Tensor> parts = parts_of_rows(rows, encoder.output_parts);
    media.push_back({places, parts.front()});
    parts.erase(parts.begin());
    if (!parts.empty()) added.push_back({.positions = places, .parts = std::move(parts)});
  }
  NetworkRun text = run;
  text.context.dropout = inputs.draws.get();
  return run_layers(*decoder_, decoder_->enter(inputs, media, text.context), {}, added, inputs, text, cache).last;
}

at::Tensor Network::logits(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->logits(hidden(inputs, run), run.context);
}

at::Tensor Network::loss_sum(const Inputs& inputs, const NetworkRun& run) const {
  return decoder_->loss_sum(hidden(inputs, run), inputs.target_rows, inputs.targets, run.context);
}

}  // namespace weft
