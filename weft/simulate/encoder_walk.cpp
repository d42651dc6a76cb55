#include "weft/simulate/encoder_walk.h"

namespace weft {

EncoderWalk::EncoderWalk(ModuleKind kind, Settings settings, std::unique_ptr<StageWalk> stage)
    : settings_(settings), stage_(std::move(stage)) {
  for (const std::optional<EncoderLoad>& macro : *settings_.macro_batches) {
    MicrobatchLoad& load = loads_.emplace_back();
    if (macro) load.media[kind] = *macro;
  }
}

CountedTensor EncoderWalk::run(int64_t macro, bool keeps, Visit& visit) {
  const MicrobatchLoad& load = loads_[static_cast<size_t>(macro)];
  WalkedFlow flow(settings_.module + 1);
  for (const StageWalk::FlowBytes& tensor : stage_->tensors_in(load)) {
    if (!visit.input.is_defined()) visit.input = received(tensor);
    flow[settings_.module] = visit.input;
  }
  return stage_->forward(std::move(flow), load, {}, keeps, /*defers=*/false, visit.walked)[settings_.module];
}

CountedTensor EncoderWalk::received(const StageWalk::FlowBytes& tensor) const {
  return tensor.arrived(CountedTensor(*settings_.count, tensor.sent_bytes), *settings_.count);
}

void EncoderWalk::forward(int64_t macro) {
  Visit visit;
  CountedTensor y = run(macro, settings_.rows->keeps_activations(), visit);
  if (is_last()) {
    made_[macro] = std::move(y);
  } else {
    for (const StageWalk::FlowBytes& tensor : stage_->tensors_out(loads_[static_cast<size_t>(macro)]))
      settings_.flights->add(tensor.sent(y, *settings_.count));
  }
  if (settings_.rows->is_trained) visits_[macro] = std::move(visit);
}

void EncoderWalk::backward(int64_t macro) {
  const MicrobatchLoad& load = loads_[static_cast<size_t>(macro)];
  Visit visit = std::move(visits_.extract(macro).mapped());
  WalkedFlow gradients(settings_.module + 1);
  if (is_last()) {
    gradients[settings_.module] = settings_.bridge->take_gradient(macro);
  } else {
    for (const StageWalk::FlowBytes& tensor : stage_->tensors_out(load)) {
      if (tensor.needs_gradient) gradients[settings_.module] = received(tensor);
    }
  }
  if (settings_.rows->recompute_from_inputs) run(macro, /*keeps=*/true, visit);
  WeightsWalk& weights = stage_->weights();
  weights.begin_gradients(++num_backward_ == settings_.rows->num_macro_batches);
  weights.begin_backward(nullptr);
  WalkedFlow of_inputs = stage_->backward(std::move(gradients), visit.walked);
  weights.end_backward();
  for (const StageWalk::FlowBytes& tensor : stage_->tensors_in(load)) {
    if (!tensor.needs_gradient) continue;
    CountedTensor& made = of_inputs[tensor.module];
    if (!made.is_defined()) made = CountedTensor(*settings_.count, tensor.bytes);
    settings_.flights->add(tensor.sent(made, *settings_.count));
  }
  of_inputs.clear();
  weights.end_gradients();
}

}  // namespace weft
