#pragma once

#include "tests/support/pipeline/example_training.h"

namespace weft::training {

/// What a run by any plans should come to: one device in double precision with AdamW written out, which may change its
/// global batch and what it trains between two steps. A weight that is thawed has moments of its own age.
class OneRank {
 public:
  OneRank(const Model& model, double epsilon, double learning_rate = kExampleRate)
      : maker_(at::TensorOptions().dtype(at::kDouble)),
        network_(*Network::create(model, maker_)),
        settings_{.epsilon = epsilon},
        learning_rate_(learning_rate) {
    initialize_weights(maker_.all(), kExampleSeed);
  }

  /// Moves every element by at most this share of itself, as rounding does.
  void disturb(double share) {
    const at::NoGradGuard no_graph;
    for (const ParameterPtr& p : maker_.all()) p->value.detach().mul_(1 + share * (2 * at::rand_like(p->value) - 1));
  }

  /// From the next step on by this plan's batch and frozen weights.
  void use(const Plan& plan) {
    batch_ = plan.workload.global_batch_samples;
    for (const ParameterPtr& parameter : maker_.all()) {
      const std::string& name = parameter->spec.pieces.front().name;
      const ModuleKind kind = module_with(plan.model, name);
      const auto& frozen = plan.workload.frozen;
      bool is_trained = std::find(frozen.begin(), frozen.end(), kind) == frozen.end();
      for (const TrainRule& rule : plan.trainable)
        if (is_meant(rule, name)) is_trained = rule.train;
      parameter->value.set_requires_grad(is_trained);
      if (!is_trained) states_.erase(parameter.get());
    }
  }

  std::vector<RawInputs> next_samples() const {
    std::vector<RawInputs> samples;
    for (int64_t i = 0; i < batch_; ++i)
      samples.push_back(draw_example(network_.numbers(), network_.decoder().vocabulary(),
                                     static_cast<uint64_t>(5000 + num_samples_ + i)));
    return samples;
  }

  struct Step {
    double loss = 0;
    double norm = 0;
  };
  Step step() {
    const std::vector<RawInputs> samples = next_samples();
    num_samples_ += batch_;
    const auto num_targets = static_cast<double>(num_example_targets(samples));
    const at::Tensor loss = network_.loss_sum(
        packed_example(network_.numbers(), network_.decoder().vocabulary(), std::span(samples), at::kDouble), {});
    if (loss.requires_grad()) (loss / num_targets).backward();
    const at::NoGradGuard no_graph;
    double squares = 0;
    for (const ParameterPtr& p : maker_.all())
      if (p->gradient.defined()) squares += p->gradient.square().sum().item<double>();
    const double scale = std::min(1.0, kExampleMaxNorm / (std::sqrt(squares) + 1e-6));
    for (const ParameterPtr& p : maker_.all()) {
      if (!p->is_trainable()) continue;
      State& state = states_[p.get()];
      if (state.updates++ == 0) {
        state.first = at::zeros_like(p->value);
        state.second = at::zeros_like(p->value);
      }
      const at::Tensor gradient = p->gradient.defined() ? p->gradient * scale : at::zeros_like(p->value);
      at::Tensor value = p->value.detach();
      if (value.dim() >= 2) value.mul_(1 - learning_rate_ * settings_.weight_decay);
      state.first.mul_(settings_.beta1).add_(gradient, 1 - settings_.beta1);
      state.second.mul_(settings_.beta2).addcmul_(gradient, gradient, 1 - settings_.beta2);
      const double c1 = 1 - std::pow(settings_.beta1, static_cast<double>(state.updates));
      const double c2 = 1 - std::pow(settings_.beta2, static_cast<double>(state.updates));
      value.sub_(state.first / c1 / ((state.second / c2).sqrt() + settings_.epsilon) * learning_rate_);
      p->gradient.reset();
    }
    return {.loss = loss.item<double>() / num_targets, .norm = std::sqrt(squares)};
  }

  std::map<std::string, at::Tensor> weights() const {
    std::map<std::string, at::Tensor> all;
    const NamedWeights named(maker_.all());
    for (const std::string& name : named.names()) all[name] = named.value(name);
    return all;
  }

 private:
  struct State {
    at::Tensor first, second;
    int64_t updates = 0;
  };

  WholeParameters maker_;
  Network network_;
  AdamWSettings settings_;
  double learning_rate_;
  std::map<Parameter*, State> states_;
  int64_t batch_ = 1;
  int64_t num_samples_ = 0;
};

}  // namespace weft::training
