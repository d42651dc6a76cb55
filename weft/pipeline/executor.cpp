#include "weft/pipeline/executor.h"

#include <algorithm>
#include <chrono>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/pipeline/action_clock.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

template <typename Map>
typename Map::mapped_type take(Map& map, const typename Map::key_type& key, const char* what) {
  auto node = map.extract(key);
  WEFT_CHECK(!node.empty(), "{} of stage {}, microbatch {} is not there", what, key.first, key.second);
  return std::move(node.mapped());
}

std::optional<torch::autograd::Edge> root_of(const at::Tensor& x) {
  if (!x.requires_grad()) return std::nullopt;
  return torch::autograd::impl::gradient_edge(x);
}

std::vector<FlowTensor> needing_gradients(std::vector<FlowTensor> tensors) {
  std::erase_if(tensors, [](const FlowTensor& tensor) { return !tensor.needs_gradient; });
  return tensors;
}

Stream stream_of(ActionKind kind) {
  if (kind == ActionKind::kReduceGrad || kind == ActionKind::kEncodeReduce) return Stream::kReduce;
  if (is_send(kind)) return Stream::kSend;
  return moves_tensors(kind) ? Stream::kReceive : Stream::kCompute;
}

}  // namespace

void PipelineExecutor::Transfer::wait() {
  for (Work& work : works) work.wait();
}

PipelineExecutor::PipelineExecutor(Settings settings)
    : schedule_(std::move(settings.lowered)),
      row_(settings.row),
      stages_(std::move(settings.stages)),
      pipeline_(std::move(settings.pipeline)),
      encoders_(std::move(settings.encoders)),
      pace_(std::move(settings.pace)),
      device_(settings.device),
      blocked_ms_(std::move(settings.blocked_ms)) {
  WEFT_CHECK(!pipeline_ || pipeline_->rank() == row_, "rank {} of the pipeline runs row {}", pipeline_->rank(),
             row_.value_or(-1));
  for (const Stage& stage : stages_) {
    if (stage.model != nullptr) options_ = stage.model->options();
  }
  backwards_ = backwards_of_row(actions(), stages_.size());
}

const std::vector<Action>& PipelineExecutor::actions() const {
  static const std::vector<Action> kNone;
  return row_ ? schedule_.rows[static_cast<size_t>(*row_)] : kNone;
}

std::vector<at::Tensor> PipelineExecutor::joined(const StageModel& model, const std::vector<FlowTensor>& tensors,
                                                 Transfer transfer) {
  const double start = now_ms();
  transfer.wait();
  output_.waited_ms += now_ms() - start;
  std::vector<at::Tensor> arrived = std::move(transfer.tensors);
  for (size_t i = 0; i < arrived.size(); ++i) arrived[i] = model.joined(tensors[i], arrived[i]);
  return arrived;
}

void PipelineExecutor::take_media(const StageModel& model, int32_t microbatch, Visit& visit, Flow& flow) {
  for (const Encoder& encoder : encoders_) {
    if (encoder.bridge == nullptr || !model.takes_rows(encoder.kind, inputs(microbatch))) continue;
    const bool is_trained = schedule_.encoders[static_cast<size_t>(&encoder - encoders_.data())].is_trained;
    at::Tensor& rows = flow[encoder.module];
    rows = encoder.bridge->take_rows(microbatch).detach().set_requires_grad(is_trained);
    if (is_trained) visit.media.emplace_back(encoder.bridge, rows);
  }
}

void PipelineExecutor::give_media_gradients(const Visit& visit, int32_t microbatch) {
  for (const auto& [bridge, rows] : visit.media)
    bridge->give_gradient(microbatch, rows.grad().defined() ? rows.grad() : at::zeros_like(rows));
}

void PipelineExecutor::encode(const Action& action) {
  const Encoder& encoder = encoders_[static_cast<size_t>(action.stage)];
  if (action.kind == ActionKind::kRecvRows) return encoder.bridge->receive_rows(action.microbatch);
  if (action.kind == ActionKind::kSendRowGrads) return encoder.bridge->send_gradients(action.microbatch);
  WEFT_CHECK(encoder.runner != nullptr, "{} of an encoder that is not here", to_text(action));
  if (action.kind == ActionKind::kSendRows) return encoder.runner->send_rows(action.microbatch);
  if (action.kind == ActionKind::kRecvRowGrads) return encoder.runner->receive_gradients(action.microbatch);
  if (action.kind == ActionKind::kEncodeBackward) return encoder.runner->backward(action.microbatch);
  if (action.kind == ActionKind::kEncodeReduce) return encoder.runner->reduce();
  if (action.kind == ActionKind::kSendEncoded) return encoder.runner->send_encoded(action.microbatch);
  if (action.kind == ActionKind::kRecvEncoded) return encoder.runner->receive_encoded(action.microbatch);
  if (action.kind == ActionKind::kSendEncodedGrads) return encoder.runner->send_encoded_gradient(action.microbatch);
  if (action.kind == ActionKind::kRecvEncodedGrads) return encoder.runner->receive_encoded_gradient(action.microbatch);
  const at::Tensor sum = encoder.runner->forward(action.microbatch);
  if (!sum.defined()) return;
  at::Tensor& all = output_.sums[encoder.kind];
  all = all.defined() ? all + sum : sum;
}

void PipelineExecutor::forward(int32_t index, int32_t microbatch) {
  const StageModel& model = stage(index);
  const Place place{index, microbatch};
  Visit visit;
  Flow flow(8);
  if (index > 0) {
    const std::vector<FlowTensor> tensors = model.tensors_in(inputs(microbatch));
    const std::vector<at::Tensor> given = schedule_.crosses_ranks(index - 1)
                                              ? joined(model, tensors, take(arrived_, place, "the input"))
                                              : take(made_, {index - 1, microbatch}, "the output");
    for (size_t i = 0; i < tensors.size(); ++i) {
      visit.inputs.push_back(given[i].detach().set_requires_grad(tensors[i].needs_gradient));
      flow[tensors[i].module] = visit.inputs.back();
    }
  }
  take_media(model, microbatch, visit, flow);
  visit.deferred = std::make_unique<WeightGradients>();
  GrowingText* text = nullptr;
  if (texts_ != nullptr) {
    const int64_t most = texts_->most_tokens[static_cast<size_t>(microbatch)];
    text = &texts_->kept.try_emplace(place, GrowingText{.most_tokens = most}).first->second;
  }
  StageResult result =
      model.forward(std::move(flow), inputs(microbatch), backwards_.are_split ? visit.deferred.get() : nullptr,
                    &weights_of(index).hooks(), text);
  keep_pace(pace_, doing_);
  for (const auto& [kind, sum] : result.sums) {
    at::Tensor& all = output_.sums[kind];
    all = all.defined() ? all + sum : sum;
  }
  if (!result.expert_rows.empty()) output_.routed_rows[place] = std::move(result.expert_rows);
  if (result.balance_loss.defined()) {
    at::Tensor& sum = output_.balance_loss;
    sum = sum.defined() ? sum + result.balance_loss : result.balance_loss;
  }
  if (model.is_last()) {
    visit.roots.push_back(root_of(result.loss));
    loss_type_ = result.loss.scalar_type();
    const at::Tensor value = result.loss.detach();
    output_.loss_sum = output_.loss_sum.defined() ? output_.loss_sum + value : value;
  } else {
    std::vector<at::Tensor>& outputs = made_[place];
    for (const FlowTensor& tensor : model.tensors_out(inputs(microbatch))) {
      const at::Tensor& x = result.flow[tensor.module];
      outputs.push_back(schedule_.crosses_ranks(index) ? StageModel::part_sent(tensor, x.detach()) : x.detach());
      if (tensor.needs_gradient) visit.roots.push_back(root_of(x));
    }
  }
  if (at::GradMode::is_enabled()) visits_[place] = std::move(visit);
}

void PipelineExecutor::backward(int32_t index, int32_t microbatch, bool defers_weights) {
  const StageModel& model = stage(index);
  const Place place{index, microbatch};
  Visit& visit = visits_.at(place);
  std::vector<at::Tensor> gradients;
  if (!model.is_last()) {
    gradients = schedule_.crosses_ranks(index) ? joined(model, needing_gradients(model.tensors_out(inputs(microbatch))),
                                                        take(arrived_gradients_, place, "the output's gradient"))
                                               : take(made_gradients_, {index + 1, microbatch}, "the input's gradient");
  }
  if (model.is_last()) gradients = {at::full({}, loss_scale_, model.options().dtype(loss_type_))};
  WEFT_CHECK(gradients.size() == visit.roots.size(), "{} gradients for {} outputs", gradients.size(),
             visit.roots.size());
  torch::autograd::edge_list roots;
  torch::autograd::variable_list root_gradients;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!visit.roots[i]) continue;
    roots.push_back(*visit.roots[i]);
    root_gradients.push_back(std::move(gradients[i]));
  }
  StageWeights& weights = weights_of(index);
  const bool is_last = backwards_.is_last(index, microbatch);
  if (!backwards_.are_split) weights.begin_gradients(is_last);
  weights.begin_backward(backwards_.are_split ? visit.deferred.get() : nullptr);
  if (!roots.empty()) {
    torch::autograd::Engine::get_default_engine().execute(roots, root_gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
    root_gradients.clear();
  }
  weights.end_backward();
  if (backwards_.are_split && !defers_weights) {
    weights.begin_gradients(is_last);
    visit.deferred->run();
  }
  keep_pace(pace_, doing_);
  if (index > 0) {
    std::vector<at::Tensor>& made = made_gradients_[place];
    const std::vector<FlowTensor> tensors = model.tensors_in(inputs(microbatch));
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& input = visit.inputs[i];
      if (!input.requires_grad()) continue;
      const at::Tensor gradient = input.grad().defined() ? input.grad() : at::zeros_like(input);
      made.push_back(schedule_.crosses_ranks(index - 1) ? StageModel::part_sent(tensors[i], gradient) : gradient);
    }
  }
  give_media_gradients(visit, microbatch);
  visit.media.clear();
  visit.inputs.clear();
  visit.roots.clear();
  if (defers_weights) return;
  visits_.erase(place);
  weights.end_gradients();
}

void PipelineExecutor::weights(int32_t index, int32_t microbatch) {
  const Place place{index, microbatch};
  StageWeights& weights = weights_of(index);
  weights.begin_gradients(backwards_.is_last(index, microbatch));
  visits_.at(place).deferred->run();
  keep_pace(pace_, doing_);
  visits_.erase(place);
  weights.end_gradients();
}

void PipelineExecutor::send(const std::vector<at::Tensor>& tensors, int32_t to_stage) {
  Transfer transfer;
  const int64_t to = schedule_.rank_of_stage[static_cast<size_t>(to_stage)];
  for (const at::Tensor& tensor : tensors) {
    transfer.tensors.push_back(tensor.contiguous());
    transfer.works.push_back(pipeline_->send(buffer_of(transfer.tensors.back()), to));
  }
  sends_.push_back(std::move(transfer));
}

PipelineExecutor::Transfer PipelineExecutor::receive(const std::vector<FlowTensor>& shapes, int32_t from_stage) {
  Transfer transfer;
  const int64_t from = schedule_.rank_of_stage[static_cast<size_t>(from_stage)];
  for (const FlowTensor& shape : shapes) {
    transfer.tensors.push_back(at::empty({shape.sent.size(), shape.shape.back()}, options_));
    transfer.works.push_back(pipeline_->recv(buffer_of(transfer.tensors.back()), from));
  }
  return transfer;
}

void PipelineExecutor::reap_sends(bool all) {
  while (!sends_.empty()) {
    bool is_done = true;
    for (Work& work : sends_.front().works) is_done = is_done && work.is_done();
    if (!is_done && !all) return;
    sends_.front().wait();
    sends_.pop_front();
  }
}

int64_t PipelineExecutor::sent_bytes() const {
  TensorFlights flights;
  for (const Transfer& transfer : sends_) {
    for (const at::Tensor& tensor : transfer.tensors) flights.add(tensor);
  }
  for (const Encoder& encoder : encoders_) {
    if (encoder.runner != nullptr) encoder.runner->add_to(flights);
    if (encoder.bridge != nullptr) encoder.bridge->add_to(flights);
  }
  return flights.bytes();
}

/// For neighbours, and for rows between modules.
double PipelineExecutor::waited_so_far() const {
  double waited = output_.waited_ms;
  for (const Encoder& encoder : encoders_) {
    if (encoder.runner != nullptr) waited += encoder.runner->waited_ms();
    if (encoder.bridge != nullptr) waited += encoder.bridge->waited_ms();
  }
  return waited;
}

void PipelineExecutor::begin(const std::vector<Inputs>& microbatches) {
  const int64_t expected = pipeline_ ? schedule_.num_microbatches : 0;
  WEFT_CHECK(std::ssize(microbatches) == expected, "{} microbatches for a row of {}", microbatches.size(), expected);
  microbatches_ = &microbatches;
  output_ = {};
}

StepOutput PipelineExecutor::end() {
  reap_sends(/*all=*/true);
  for (const Encoder& encoder : encoders_) {
    if (encoder.runner != nullptr) {
      output_.waited_ms += encoder.runner->waited_ms();
      encoder.runner->end();
    }
    if (encoder.bridge != nullptr) {
      output_.waited_ms += encoder.bridge->waited_ms();
      encoder.bridge->end();
    }
  }
  WEFT_CHECK(
      visits_.empty() && arrived_.empty() && arrived_gradients_.empty() && made_.empty() && made_gradients_.empty(),
      "a step left tensors behind");
  return std::move(output_);
}

StepOutput PipelineExecutor::run_forwards(const std::vector<Inputs>& microbatches, GrowingTexts* texts) {
  const at::NoGradGuard no_graph;
  begin(microbatches);
  texts_ = texts;
  for (const Action& action : actions()) {
    const int32_t s = action.stage;
    const int32_t m = action.microbatch;
    doing_ = action;
    const bool gives_rows = action.kind == ActionKind::kSendRows || action.kind == ActionKind::kRecvRows ||
                            action.kind == ActionKind::kSendEncoded || action.kind == ActionKind::kRecvEncoded;
    if (action.kind == ActionKind::kEncodeForward || gives_rows) encode(action);
    if (action.kind == ActionKind::kForward) forward(s, m);
    if (action.kind == ActionKind::kSendForward) send(take(made_, {s, m}, "the output"), s + 1);
    if (action.kind == ActionKind::kRecvForward) arrived_[{s, m}] = receive(stage(s).tensors_in(inputs(m)), s - 1);
  }
  texts_ = nullptr;
  return end();
}

StepOutput PipelineExecutor::run(const std::vector<Inputs>& microbatches, double loss_scale, const StepEnd& step_end,
                                 bool asks_device) {
  begin(microbatches);
  loss_scale_ = loss_scale;
  bool is_finished = false;
  ActionClock clock(device_, asks_device);
  std::vector<double> waits;  // at the beginning of each action
  const std::shared_ptr<MemoryCount> memory = current_memory_count();
  for (const Action& action : actions()) {
    const int32_t s = action.stage;
    const int32_t m = action.microbatch;
    reap_sends(/*all=*/false);
    if (memory) memory->forget_peak();
    const double waited_before = waited_so_far(), blocked_before = blocked_so_far();
    double finish_wait = 0;
    const double start = now_ms();
    clock.begin_action();
    doing_ = action;
    switch (action.kind) {
      case ActionKind::kForward:
        forward(s, m);
        break;
      case ActionKind::kBackward:
        backward(s, m, /*defers_weights=*/false);
        break;
      case ActionKind::kBackwardInput:
        backward(s, m, /*defers_weights=*/true);
        break;
      case ActionKind::kBackwardWeight:
        weights(s, m);
        break;
      case ActionKind::kSendForward:
        send(take(made_, {s, m}, "the output"), s + 1);
        break;
      case ActionKind::kRecvForward:
        arrived_[{s, m}] = receive(stage(s).tensors_in(inputs(m)), s - 1);
        break;
      case ActionKind::kSendBackward:
        send(take(made_gradients_, {s, m}, "the input's gradient"), s - 1);
        break;
      case ActionKind::kRecvBackward:
        arrived_gradients_[{s, m}] = receive(needing_gradients(stage(s).tensors_out(inputs(m))), s + 1);
        break;
      case ActionKind::kReduceGrad:
        weights_of(s).reduce();
        break;
      case ActionKind::kUpdate:
      case ActionKind::kEncodeUpdate:
        if (!is_finished) {
          step_end.finish();
          finish_wait = blocked_so_far() - blocked_before;  // for sums, and for ranks that come to them later
        }
        is_finished = true;
        step_end.update(action);
        keep_pace(pace_, action);
        break;
      case ActionKind::kEncodeForward:
      case ActionKind::kEncodeBackward:
      case ActionKind::kEncodeReduce:
      case ActionKind::kSendRows:
      case ActionKind::kRecvRows:
      case ActionKind::kSendRowGrads:
      case ActionKind::kRecvRowGrads:
      case ActionKind::kSendEncoded:
      case ActionKind::kRecvEncoded:
      case ActionKind::kSendEncodedGrads:
      case ActionKind::kRecvEncodedGrads:
        encode(action);
        break;
    }
    clock.end_action();
    waits.push_back(waited_so_far() - waited_before + finish_wait);
    output_.events.push_back({.action = action,
                              .stream = stream_of(action.kind),
                              .start_ms = start,
                              .end_ms = now_ms(),
                              .blocked_ms = std::max(0.0, blocked_so_far() - blocked_before - waits.back())});
    if (memory) output_.memory.push_back({memory->current_bytes(), memory->peak_bytes(), sent_bytes()});
  }
  if (!is_finished) step_end.finish();
  clock.resolve(output_.events);
  for (size_t i = 0; i < waits.size(); ++i) {
    TimelineEvent& event = output_.events[i];
    event.start_ms = std::min(event.end_ms, event.start_ms + waits[i]);
    event.blocked_ms = std::min(event.blocked_ms, event.end_ms - event.start_ms);
  }
  return end();
}

}  // namespace weft
