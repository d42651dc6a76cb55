#include "weft/pipeline/encoder_runner.h"

#include <chrono>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/tensor/local_tensor.h"

namespace weft {

EncoderRunner::EncoderRunner(Settings settings) : settings_(std::move(settings)) {
  WEFT_CHECK((settings_.bridge != nullptr) == is_last(), "an encoder's last stage, and no other, hands rows over");
  WEFT_CHECK(settings_.pipeline.has_value() || (is_first() && is_last()), "stages without a group");
}

void EncoderRunner::begin(const std::vector<Inputs>& macro_batches) {
  WEFT_CHECK(std::ssize(macro_batches) == settings_.rows.num_macro_batches, "{} macro batches for a schedule of {}",
             macro_batches.size(), settings_.rows.num_macro_batches);
  macro_batches_ = &macro_batches;
  num_backward_ = 0;
  waited_ms_ = 0;
}

at::Tensor EncoderRunner::run(int64_t macro, Visit& visit) {
  Flow flow(settings_.module + 1);
  if (!is_first()) {
    for (const FlowTensor& shape : settings_.model->tensors_in(inputs(macro))) {
      if (!visit.input.defined()) visit.input = take(arriving_, macro).set_requires_grad(shape.needs_gradient);
      flow[settings_.module] = visit.input;
    }
  }
  StageResult result =
      settings_.model->forward(std::move(flow), inputs(macro), /*deferred=*/nullptr, &settings_.weights->hooks());
  for (const auto& [kind, sum] : result.sums) sum_ = sum_.defined() ? sum_ + sum : sum;
  const at::Tensor& y = result.flow[settings_.module];
  if (y.defined() && y.requires_grad()) visit.root = torch::autograd::impl::gradient_edge(y);
  return y;
}

at::Tensor EncoderRunner::forward(int64_t macro) {
  reap_sends();
  wait_for_place(macro);
  sum_.reset();
  Visit visit;
  at::Tensor y;
  {
    const at::AutoGradMode with_graph(at::GradMode::is_enabled() && settings_.rows.keeps_activations());
    y = run(macro, visit);
  }
  if (y.defined()) y = y.detach();
  keep_pace(ActionKind::kEncodeForward, macro);
  if (is_last()) {
    made_[macro] = y;
  } else {
    for (const FlowTensor& tensor : settings_.model->tensors_out(inputs(macro)))
      made_[macro] = StageModel::part_sent(tensor, y);
  }
  if (at::GradMode::is_enabled() && settings_.rows.is_trained) visits_[macro] = std::move(visit);
  return std::move(sum_);
}

void EncoderRunner::send_rows(int64_t macro) {
  auto rows = made_.extract(macro);
  WEFT_CHECK(!rows.empty(), "rows of macro batch {} are sent without its EF", macro);
  settings_.bridge->send_rows(macro, rows.mapped());
}

void EncoderRunner::receive_gradients(int64_t macro) {
  settings_.bridge->receive_gradients(macro);
}

void EncoderRunner::backward(int64_t macro) {
  reap_sends();
  auto node = visits_.extract(macro);
  WEFT_CHECK(!node.empty(), "EB of macro batch {} without its EF", macro);
  Visit visit = std::move(node.mapped());
  at::Tensor gradient;
  if (is_last()) {
    gradient = settings_.bridge->take_gradient(macro);
  } else {
    gradient = take(arriving_gradients_, macro);
  }
  if (settings_.rows.recompute_from_inputs) run(macro, visit);
  StageWeights& weights = *settings_.weights;
  // In the order of the row, which need not be that of their numbers.
  const bool is_last_macro = ++num_backward_ == settings_.rows.num_macro_batches;
  weights.begin_gradients(is_last_macro);
  weights.begin_backward(nullptr);
  if (visit.root) {
    torch::autograd::Engine::get_default_engine().execute({*visit.root}, {std::move(gradient)}, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
  weights.end_backward();
  keep_pace(ActionKind::kEncodeBackward, macro);
  if (visit.input.defined() && visit.input.requires_grad()) {
    const at::Tensor& made = visit.input.grad();
    const FlowTensor tensor = settings_.model->tensors_in(inputs(macro)).front();
    made_gradients_[macro] = StageModel::part_sent(tensor, made.defined() ? made : at::zeros_like(visit.input));
  }
  weights.end_gradients();
}

void EncoderRunner::send_encoded(int64_t macro) {
  const auto made = made_.extract(macro);
  if (!made.empty()) send(macro, made.mapped(), settings_.pipeline->rank() + 1);
}

void EncoderRunner::receive_encoded(int64_t macro) {
  for (const FlowTensor& shape : settings_.model->tensors_in(inputs(macro)))
    arriving_.emplace(macro, receive(shape, settings_.pipeline->rank() - 1));
}

void EncoderRunner::send_encoded_gradient(int64_t macro) {
  const auto made = made_gradients_.extract(macro);
  if (!made.empty()) send(macro, made.mapped(), settings_.pipeline->rank() - 1);
}

void EncoderRunner::receive_encoded_gradient(int64_t macro) {
  for (const FlowTensor& shape : settings_.model->tensors_out(inputs(macro))) {
    if (shape.needs_gradient) arriving_gradients_.emplace(macro, receive(shape, settings_.pipeline->rank() + 1));
  }
}

void EncoderRunner::reduce() {
  settings_.weights->reduce();
}

void EncoderRunner::wait_for_place(int64_t macro) {
  // Where EB keeps nothing from EF, rows are alive until they are sent.
  const int64_t live = settings_.rows.live_macro_batches;
  if (live == 0 || settings_.rows.keeps_activations()) return;
  if (is_last()) settings_.bridge->wait_until_sent(macro - live);
  const double start = now_ms();
  while (!sends_.empty() && sends_.front().macro <= macro - live) {
    sends_.front().work.wait();
    sends_.pop_front();
  }
  waited_ms_ += now_ms() - start;
}

EncoderRunner::Received EncoderRunner::receive(const FlowTensor& shape, int64_t from) {
  at::Tensor part = at::empty({shape.sent.size(), shape.shape.back()}, settings_.model->options());
  Work work = settings_.pipeline->recv(buffer_of(part), from);
  return {.shape = shape, .part = std::move(part), .work = std::move(work)};
}

at::Tensor EncoderRunner::take(Arriving& from, int64_t macro) {
  auto node = from.extract(macro);
  if (node.empty()) return {};
  Received received = std::move(node.mapped());
  const double start = now_ms();
  received.work.wait();
  waited_ms_ += now_ms() - start;
  return settings_.model->joined(received.shape, received.part);
}

void EncoderRunner::send(int64_t macro, const at::Tensor& tensor, int64_t to) {
  const at::Tensor sent = tensor.contiguous();
  sends_.push_back({macro, sent, settings_.pipeline->send(buffer_of(sent), to)});
}

void EncoderRunner::reap_sends() {
  while (!sends_.empty() && sends_.front().work.is_done()) {
    sends_.front().work.wait();
    sends_.pop_front();
  }
}

void EncoderRunner::add_to(TensorFlights& flights) const {
  for (const Sent& sent : sends_) flights.add(sent.tensor);
}

void EncoderRunner::end() {
  for (Sent& sent : sends_) sent.work.wait();
  sends_.clear();
  WEFT_CHECK(
      visits_.empty() && made_.empty() && made_gradients_.empty() && arriving_.empty() && arriving_gradients_.empty(),
      "a step left macro batches behind");
  macro_batches_ = nullptr;
}

}  // namespace weft
