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
    if (!visit.input.is_defined()) visit.input = take(arriving_, macro, tensor);
    flow[settings_.module] = visit.input;
  }
  return stage_->forward(std::move(flow), load, {}, keeps, /*defers=*/false, visit.walked)[settings_.module];
}

CountedTensor EncoderWalk::take(std::map<int64_t, CountedTensor>& from, int64_t macro,
                                const StageWalk::FlowBytes& tensor) const {
  const CountedTensor part = std::move(from.extract(macro).mapped());
  return tensor.arrived(part, *settings_.count);
}

void EncoderWalk::send(std::map<int64_t, CountedTensor>& from, int64_t macro) {
  auto made = from.extract(macro);
  if (!made.empty()) settings_.flights->add(std::move(made.mapped()));
}

void EncoderWalk::receive_encoded(int64_t macro) {
  for (const StageWalk::FlowBytes& tensor : stage_->tensors_in(loads_[static_cast<size_t>(macro)]))
    arriving_[macro] = CountedTensor(*settings_.count, tensor.sent_bytes);
}

void EncoderWalk::receive_encoded_gradient(int64_t macro) {
  for (const StageWalk::FlowBytes& tensor : stage_->tensors_out(loads_[static_cast<size_t>(macro)])) {
    if (tensor.needs_gradient) arriving_gradients_[macro] = CountedTensor(*settings_.count, tensor.sent_bytes);
  }
}

void EncoderWalk::forward(int64_t macro) {
  Visit visit;
  CountedTensor y = run(macro, settings_.rows->keeps_activations(), visit);
  if (is_last()) {
    made_[macro] = std::move(y);
  } else {
    for (const StageWalk::FlowBytes& tensor : stage_->tensors_out(loads_[static_cast<size_t>(macro)]))
      made_[macro] = tensor.sent(y, *settings_.count);
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
      if (tensor.needs_gradient) gradients[settings_.module] = take(arriving_gradients_, macro, tensor);
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
    made_gradients_[macro] = tensor.sent(made, *settings_.count);
  }
  of_inputs.clear();
  weights.end_gradients();
}

}  // namespace weft
