#pragma once

#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/plain_program.h"
#include "weft/data/named_samples.h"
#include "weft/program/program_text.h"

// Users' own programs that are trained by a plan, and by a plain loop over the same operators.
namespace weft {

/// Post-norm layers with biases, dropout, and attention in heads of their own.
inline std::string encoder_program(double dropout) {
  return fmt::format(R"(weft_program 1 encoder
dim b 4
dim s 6
dim h 8
dim k 24 unit 6
dim o 8 unit 2
dim f 12
dim v 11
data ids [b s]
weight table [v h]
x = lookup(ids, table) : b s, v h -> b s h
repeat 4 x
weight wqkv [k h]
qkv = einsum(x, wqkv) : b s h, k h -> b s k
weight bqkv [k]
qkvb = add(qkv, bqkv) : b s k, k -> b s k
mix = attention(qkvb) : b s k -> b s k ; as b s o ; heads 4 4 2 ; mask causal
weight wo [h o]
out = einsum(mix, wo) : b s o, h o -> b s h
weight bo [h]
outb = add(out, bo) : b s h, h -> b s h
od = dropout(outb) : b s h -> b s h ; drops {}
r1 = add(x, od) : b s h, b s h -> b s h
weight g1 [h]
weight b1 [h]
n1 = norm(r1, g1, b1) : b s h, h, h -> b s h ; epsilon 1e-5
weight w1 [f h]
up = einsum(n1, w1) : b s h, f h -> b s f
act = elementwise(up) : b s f -> b s f ; does relu
weight w2 [f h]
down = einsum(act, w2) : b s f, f h -> b s h
r2 = add(n1, down) : b s h, b s h -> b s h
weight g2 [h]
y = norm(r2, g2) : b s h, h -> b s h
end y
weight head [v h]
logits = einsum(y, head) : b s h, v h -> b s v
data targets [b s]
loss = cross_entropy(logits, targets) : b s v, b s -> b s
)",
                     dropout);
}

/// A gated MLP over shared keys, with the head tied to the table; its layers end in a product, and its loss in a sum.
inline std::string tied_program() {
  return R"(weft_program 1 tied
dim b 2
dim s 5
dim h 8
dim k 32 unit 16
dim o 16 unit 8
dim p 24 unit 4
dim f 12 unit 2
dim v 13
data ids [b s]
weight table [v h]
x = lookup(ids, table) : b s, v h -> b s h
repeat 3 x
weight g [h]
n = norm(x, g) : b s h, h -> b s h ; epsilon 1e-12
weight wqkv [k h]
qkv = einsum(n, wqkv) : b s h, k h -> b s k
mix = attention(qkv) : b s k -> b s k ; as b s o ; heads 4 2 4
weight wo [h o]
out = einsum(mix, wo) : b s o, h o -> b s h
r = add(x, out) : b s h, b s h -> b s h
weight g2 [h]
n2 = norm(r, g2) : b s h, h -> b s h ; epsilon 1e-12
weight wp [p h]
up = einsum(n2, wp) : b s h, p h -> b s p
act = elementwise(up) : b s f -> b s f ; as b s f ; does silu
weight wd [h f]
y = einsum(act, wd) : b s f, h f -> b s h
end y
weight g3 [h]
n3 = norm(y, g3) : b s h, h -> b s h ; epsilon 1e-12
weight scale [h]
scaled = multiply(n3, scale) : b s h, h -> b s h
logits = einsum(scaled, table) : b s h, v h -> b s v
data targets [b s]
losses = cross_entropy(logits, targets) : b s v, b s -> b s
loss = sum(losses) : b s ->
)";
}

/// Heads that are normed, each by itself and all keys of a row together, and that turn by angles of the data.
inline std::string heads_program() {
  return R"(weft_program 1 heads
dim b 3
dim s 5
dim h 8
dim k 32 unit 16
dim o 16 unit 8
dim d 4
dim r 8
dim a 2
dim v 7
data ids [b s]
data angles [b s a]
weight table [v h]
x = lookup(ids, table) : b s, v h -> b s h
repeat 4 x
weight wqkv [k h]
qkv = einsum(x, wqkv) : b s h, k h -> b s k
weight gq [d]
qn = custom(qkv, gq) : b s k, d -> b s k ; whole d ; heads 4 2 4 ; epsilon 1e-12 ; calls norm_queries
weight gk [r]
kn = custom(qn, gk) : b s k, r -> b s k ; whole r ; inside k ; heads 4 2 4 ; epsilon 1e-12 ; calls norm_keys
turned = custom(kn, angles) : b s k, b s a -> b s k ; whole a ; linear 0 ; heads 4 2 4 ; calls rotary
mix = attention(turned) : b s k -> b s k ; as b s o ; heads 4 2 4 ; mask causal
weight wo [h o]
out = einsum(mix, wo) : b s o, h o -> b s h
y = add(x, out) : b s h, b s h -> b s h
end y
weight head [v h]
logits = einsum(y, head) : b s h, v h -> b s v
data targets [b s]
loss = cross_entropy(logits, targets) : b s v, b s -> b s
)";
}

/// Regression without marked layers: samples have one row each.
inline std::string mlp_program() {
  return R"(weft_program 1 mlp
dim b 3
dim i 6
dim f 10
dim e 7
dim o 4
input x [b i]
weight w1 [f i]
up = einsum(x, w1) : b i, f i -> b f
weight b1 [f]
upb = add(up, b1) : b f, f -> b f
act = elementwise(upb) : b f -> b f ; does tanh
weight w2 [e f]
mid = einsum(act, w2) : b f, e f -> b e
act2 = elementwise(mid) : b e -> b e ; does silu
weight w3 [o e]
y = einsum(act2, w3) : b e, o e -> b o
weight shift [o]
yb = add(y, shift) : b o, o -> b o
data target [b o]
minus = scale(target) : b o -> b o ; factor -1
error = add(yb, minus) : b o, b o -> b o
square = multiply(error, error) : b o, b o -> b o
loss = sum(square) : b o ->
)";
}

inline Model program_example_model(const std::string& text) {
  auto model = read_model({.source = "program", .root = {{"model_type", kProgramFamily}, {kProgramKey, text}}}, "own");
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// Numbers of a step's samples, by sample and input.
inline std::vector<std::vector<std::vector<double>>> program_batch(const ProgramNumbers& numbers, int64_t step,
                                                                   int64_t batch) {
  const DrawnNamedSamples drawn(numbers, 17);
  std::vector<std::vector<std::vector<double>>> samples;
  std::vector<SkippedSample> skipped;
  for (int64_t i = 0; i < batch; ++i) {
    samples.push_back(drawn.read(step * batch + i, {}, skipped)->named);
    // Some rows have no target.
    if (numbers.targets && i % 2 == 1) samples.back()[*numbers.targets].front() = -100;
  }
  return samples;
}

/// A rank's share of a step's samples.
inline StepBatch program_step_batch(const TrainingRank& rank,
                                    const std::vector<std::vector<std::vector<double>>>& samples, int64_t step) {
  StepBatch batch;
  batch.assignment = assign_in_order(rank.batch_shape());
  for (const auto& indices : batch.assignment.llm[static_cast<size_t>(rank.data_parallel_rank())]) {
    std::vector<std::vector<std::vector<double>>> own;
    for (const int64_t index : indices) own.push_back(samples[static_cast<size_t>(index)]);
    NamedInputs named = named_inputs(*rank.numbers().program, own);
    named.samples = indices;
    Inputs inputs;
    inputs.draws = std::make_shared<const DropoutDraws>(DropoutDraws{.seed = 9, .step = step});
    inputs.named = std::make_shared<const NamedInputs>(std::move(named));
    batch.microbatches.push_back(inputs.staged(rank.options()));
  }
  return batch;
}

/// Nothing where the ranks are another number of processes. A process knows its own weights alone.
inline std::optional<TrainingOutcome> train_program_on(const PlanRanks& ranks, const TrainingExample& example,
                                                       const Plan& plan) {
  TrainingOutcome outcome;
  std::mutex guard;
  const bool has_run = ranks.run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(
        world, plan,
        {.adamw = {.epsilon = example.epsilon}, .max_gradient_norm = kExampleMaxNorm, .seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const ProgramNumbers& numbers = *rank.numbers().program;
    for (int64_t step = 1; step <= example.steps; ++step) {
      const auto samples = program_batch(numbers, step, example.batch());
      const StepBatch batch = program_step_batch(rank, samples, step);
      const StepReport report = rank.step(batch, named_inputs(numbers, samples).num_targets, kExampleRate);
      const std::lock_guard lock(guard);
      if (world.rank() != 0 && !ranks.are_processes) continue;
      outcome.losses.push_back(report.loss);
      outcome.balance_losses.push_back(0);
      outcome.norms.push_back(report.gradient_norm);
    }
    rank.gather_values();
    const std::lock_guard lock(guard);
    collect_example_weights(rank, outcome.weights);
  });
  if (!has_run) return std::nullopt;
  return outcome;
}

/// The plan's ranks are threads of this program.
inline TrainingOutcome train_program(const TrainingExample& example, const Plan& plan) {
  return train_program_on(thread_ranks(), example, plan).value();
}

/// The same by autograd over plain operators, with the same fresh weights.
inline TrainingOutcome train_program_plainly(const TrainingExample& example, const Model& model,
                                             const std::string& text) {
  at::set_num_threads(1);
  const Program program = *parse_program(text, "program");
  const PlainProgram plain(program);
  WholeParameters maker(at::TensorOptions().dtype(at::kDouble));
  make_network(model.modules.back(), model.numbers, BlockRange{}, maker);
  initialize_weights(maker.all(), kExampleSeed);
  PlainValues weights;
  {
    const at::NoGradGuard no_graph;
    const NamedWeights named(maker.all());
    for (const std::string& name : named.names()) weights[name] = named.value(name).clone().set_requires_grad(true);
  }
  const AdamWSettings settings{.epsilon = example.epsilon};
  TrainingOutcome outcome;
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> moments;
  for (int64_t step = 1; step <= example.steps; ++step) {
    const NamedInputs data =
        named_inputs(*model.numbers.program, program_batch(*model.numbers.program, step, example.batch()));
    const at::Tensor loss = plain.run(data.tensors, weights).sum() / static_cast<double>(data.num_targets);
    loss.backward();
    outcome.losses.push_back(loss.item<double>());
    outcome.balance_losses.push_back(0);
    const at::NoGradGuard no_graph;
    double squares = 0;
    for (const auto& [name, weight] : weights) squares += weight.grad().square().sum().item<double>();
    outcome.norms.push_back(std::sqrt(squares));
    const double scale = std::min(1.0, kExampleMaxNorm / (std::sqrt(squares) + 1e-6));
    for (auto& [name, weight] : weights) {
      auto& [first, second] = moments[name];
      if (!first.defined()) first = at::zeros_like(weight), second = at::zeros_like(weight);
      const at::Tensor gradient = weight.grad() * scale;
      if (weight.dim() >= 2) weight.mul_(1 - kExampleRate * settings.weight_decay);
      first.mul_(settings.beta1).add_(gradient, 1 - settings.beta1);
      second.mul_(settings.beta2).addcmul_(gradient, gradient, 1 - settings.beta2);
      const double c1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
      const double c2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
      weight.sub_(first / c1 / ((second / c2).sqrt() + settings.epsilon) * kExampleRate);
      weight.mutable_grad().reset();
    }
  }
  for (const auto& [name, weight] : weights) outcome.weights[name] = weight.detach();
  return outcome;
}

/// Any form that a plan of a program has, of one of these degrees of tensor parallelism; with stages only where the
/// program marks its layers.
inline TrainingExample drawn_program_example(const std::vector<int64_t>& tps, bool marks_layers,
                                             std::mt19937_64& random) {
  const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
  TrainingExample example;
  example.tp = pick(tps);
  example.dp = pick(std::vector<int64_t>{1, 2});
  example.zero = pick(std::vector<int64_t>{0, 1, 2, 3});
  example.buckets_mb = pick(std::vector<double>{64, 1e-4});
  example.mbs = pick(std::vector<int64_t>{1, 2, 3});
  example.microbatches = pick(std::vector<int64_t>{2, 4});
  example.overlaps = random() % 2 == 0;
  if (marks_layers) {
    example.pp = pick(std::vector<int64_t>{1, 2});
    example.schedule = pick(std::vector<std::string>{"1f1b", "gpipe", "zb_h1", "interleaved_1f1b", "zb_v"});
    const bool has_chunks = example.schedule == "interleaved_1f1b" || example.schedule == "zb_v";
    if (has_chunks) example.pp = example.vpp = 2;
    if (example.schedule == "zb_v") example.zero = std::min<int64_t>(example.zero, 1);
  }
  example.recompute.full = static_cast<int64_t>(random() % 3);
  return example;
}

}  // namespace weft
