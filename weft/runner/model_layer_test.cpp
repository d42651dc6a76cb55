#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "tests/support/first_seed.h"
#include "tests/support/runner/program_runs.h"
#include "weft/layers/transformer_layer.h"
#include "weft/program/block_program.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/text_ends.h"
#include "weft/program/transformer_block.h"

// Programs of transformer layers against the layers' own code, with the same weights.

namespace weft {
namespace {

constexpr int64_t kSamples = 3, kRows = 5, kWidth = 8, kInner = 6, kHeadDim = 4;

struct LayerKind {
  std::string name;
  TransformerBlockShape shape;
  bool normalizes = false;
};

std::vector<LayerKind> layer_kinds() {
  const AttentionShape plain{.attention = {.heads = 4, .kv_heads = 2, .head_dim = kHeadDim, .mask = Mask::kCausal}};
  const MlpShape gated{.intermediate = kInner};
  TransformerBlockShape llama{.name = "layer", .width = kWidth, .epsilon = 1e-3, .attention = plain, .mlp = gated};
  std::vector<LayerKind> kinds{{"llama", llama}};
  TransformerBlockShape qwen3 = llama;
  qwen3.attention.norms_heads = true;
  kinds.push_back({"norms of heads", qwen3});
  TransformerBlockShape rows = llama;
  rows.attention.attention = {.heads = 3, .kv_heads = 3, .head_dim = kHeadDim, .mask = Mask::kCausal};
  rows.attention.norms_rows = true;
  rows.attention.norm_epsilon = 1e-2;
  rows.scale = 0.5;
  kinds.push_back({"norms of rows, scales", rows});
  TransformerBlockShape gpt = llama;
  gpt.norm = NormKind::kLayer;
  gpt.attention.attention = {.heads = 2, .kv_heads = 2, .head_dim = kHeadDim, .mask = Mask::kFull};
  gpt.attention.has_rotary = false;
  gpt.attention.q_bias = gpt.attention.k_bias = gpt.attention.v_bias = 2 * kHeadDim;
  gpt.attention.out_bias = kWidth;
  gpt.mlp = {.intermediate = kInner, .is_gated = false, .has_bias = true, .activation = Activation::kGeluTanh};
  kinds.push_back({"layer norms and biases", gpt});
  TransformerBlockShape sliding = llama;
  sliding.attention.attention.mask = Mask::kSliding;
  sliding.attention.attention.window = 2;
  kinds.push_back({"a sliding window", sliding});
  TransformerBlockShape experts = llama;
  experts.mlp.experts = 4;
  experts.mlp.experts_per_token = 2;
  kinds.push_back({"experts", experts, false});
  kinds.push_back({"experts whose weights sum to 1", experts, true});
  return kinds;
}

Program program_of_kind(const LayerKind& kind, int64_t count = 1) {
  Module module{.width = kWidth, .distinct_layers = {make_transformer_block(kind.shape)}};
  module.layers.assign(static_cast<size_t>(count), 0);
  const ProgramSizes sizes{.samples = kSamples, .rows = kRows, .normalizes_experts = kind.normalizes};
  const Result<Program> program = program_of_layers(module, 0, sizes, "layer");
  EXPECT_TRUE(program.ok()) << program.error().message();
  return unrolled(*program)->program;
}

/// Where the rows of a program's packed weight are in the layers' one: groups of queries with their key and value,
/// there all queries before all keys before all values.
at::Tensor heads_order(const Attention& a) {
  std::vector<int64_t> order;
  const int64_t queries = a.heads / a.kv_heads;
  for (int64_t group = 0; group < a.kv_heads; ++group) {
    for (int64_t head = 0; head < queries + 2; ++head) {
      const int64_t from = head < queries    ? group * queries + head
                           : head == queries ? a.heads + group
                                             : a.heads + a.kv_heads + group;
      for (int64_t i = 0; i < a.head_dim; ++i) order.push_back(from * a.head_dim + i);
    }
  }
  return at::tensor(order, at::kLong);
}

/// A gate beside what it opens; there all gates before.
at::Tensor gates_order() {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < kInner; ++i) order.insert(order.end(), {i, kInner + i});
  return at::tensor(order, at::kLong);
}

/// Weights of a layer, by the names that the program gives them.
class LayerWeights {
 public:
  LayerWeights(const Program& program, const std::vector<at::Tensor>& given, const Attention& attention)
      : program_(program), given_(given), heads_(heads_order(attention)) {}

  /// Nothing where the program has none of this name.
  ParameterPtr get(const std::string& name) {
    const auto value = program_.find_value(name);
    if (!value) return {};
    const auto order = order_of(name);
    auto parameter = c10::make_intrusive<Parameter>();
    const int64_t dim = given_[*value].dim() == 3 ? 1 : 0;
    // What the program has in a place lies elsewhere here.
    parameter->value =
        (order ? given_[*value].index_select(dim, order->argsort()) : given_[*value]).clone().set_requires_grad(true);
    parameter->gradient_type = at::kDouble;
    parameters_.emplace_back(*value, parameter);
    return parameter;
  }

  /// Every gradient is the program's.
  void expect_gradients(const std::vector<at::Tensor>& found) const {
    for (const auto& [value, parameter] : parameters_) {
      const std::string& name = program_.values[value].name;
      ASSERT_TRUE(parameter->gradient.defined()) << name;
      const auto order = order_of(name);
      const int64_t dim = parameter->value.dim() == 3 ? 1 : 0;
      const at::Tensor own = order ? parameter->gradient.index_select(dim, *order) : parameter->gradient;
      EXPECT_LE(largest_difference(own, found[value]), 1e-9 * (1 + own.abs().max().item<double>())) << name;
    }
  }
  size_t size() const { return parameters_.size(); }

 private:
  std::optional<at::Tensor> order_of(const std::string& name) const {
    if (name.starts_with("attention.qkv")) return heads_;
    if (name.starts_with("mlp.gate_up")) return gates_order();
    return std::nullopt;
  }

  const Program& program_;
  const std::vector<at::Tensor>& given_;
  at::Tensor heads_;
  std::vector<std::pair<size_t, ParameterPtr>> parameters_;
};

TransformerLayer layer_of(const LayerKind& kind, LayerWeights& weights) {
  const Attention& a = kind.shape.attention.attention;
  TransformerLayer layer;
  const double epsilon = kind.shape.epsilon;
  layer.attention_norm = {
      .weight = weights.get("attention.norm.weight"), .bias = weights.get("attention.norm.bias"), .epsilon = epsilon};
  layer.attention = {
      .heads = {a.heads, a.kv_heads, a.head_dim},
      .mask = {.is_causal = a.mask != Mask::kFull, .window = a.window},
      .qkv = weights.get("attention.qkv.weight"),
      .qkv_bias = weights.get("attention.qkv.bias.weight"),
      .q_norm = weights.get("attention.q_norm.weight"),
      .k_norm = weights.get("attention.k_norm.weight"),
      .norms_rows = kind.shape.attention.norms_rows,
      .norm_epsilon = kind.shape.attention.norm_epsilon > 0 ? kind.shape.attention.norm_epsilon : epsilon,
      .out = weights.get("attention.out.weight"),
      .out_bias = weights.get("attention.out.bias.weight")};
  layer.attention_scale = weights.get("attention.scale.weight");
  layer.mlp_norm = {.weight = weights.get("mlp.norm.weight"), .bias = weights.get("mlp.norm.bias"), .epsilon = epsilon};
  const std::string up = kind.shape.mlp.is_gated ? "mlp.gate_up" : "mlp.up";
  if (kind.shape.mlp.experts > 0) {
    layer.moe = MoeLayer{.experts_per_token = kind.shape.mlp.experts_per_token,
                         .normalizes_weights = kind.normalizes,
                         .router = weights.get("moe.router.weight"),
                         .gate_up = weights.get(up + ".weight"),
                         .down = weights.get("mlp.down.weight")};
  } else {
    layer.mlp = {.activation = kind.shape.mlp.activation,
                 .is_gated = kind.shape.mlp.is_gated,
                 .up = weights.get(up + ".weight"),
                 .up_bias = weights.get(up + ".bias.weight"),
                 .down = weights.get("mlp.down.weight"),
                 .down_bias = weights.get("mlp.down.bias.weight")};
  }
  layer.mlp_scale = weights.get("mlp.scale.weight");
  return layer;
}

TEST(ModelLayers, ProgramsOfLayersComputeWhatTheLayersDo) {
  for (const LayerKind& kind : layer_kinds()) {
    SCOPED_TRACE(kind.name);
    const Program program = program_of_kind(kind);
    const std::vector<at::Tensor> given = random_given(program, 7);
    WholeRun run;
    constexpr uint64_t kSeed = 900;
    on_thread_ranks(1, [&](World& world) { run = run_whole(world, program, given, kSeed); });
    ASSERT_EQ(run.outputs.size(), 1u);

    LayerWeights weights(program, given, kind.shape.attention.attention);
    const TransformerLayer layer = layer_of(kind, weights);
    size_t expected = 0;
    for (const ProgramValue& value : program.values) expected += value.role == ProgramValue::Role::kWeight ? 1 : 0;
    EXPECT_EQ(weights.size(), expected);
    const at::Tensor x = given[*program.find_value("x")].flatten(0, 1).clone().set_requires_grad(true);
    RotaryTable rotary;
    if (const auto angles = program.find_value("angles")) {
      const at::Tensor all = given[*angles].flatten(0, 1);
      rotary = {at::cos(all), at::sin(all)};
    }
    const PackedSegments segments(std::vector<int64_t>(kSamples, kRows));
    const at::Tensor y = layer.forward(x, {.segments = segments, .rotary = rotary}, {});
    const at::Tensor whole = y.detach().view({kSamples, kRows, kWidth});
    EXPECT_LE(largest_difference(whole, run.outputs[0]), 1e-9 * (1 + whole.abs().max().item<double>()));
    y.backward(random_tensor({kSamples, kRows, kWidth}, kSeed).flatten(0, 1));
    EXPECT_LE(largest_difference(x.grad(), run.gradients[*program.find_value("x")].flatten(0, 1)),
              1e-9 * (1 + x.grad().abs().max().item<double>()));
    weights.expect_gradients(run.gradients);
  }
}

/// A table, layers of two kinds, a head that may be the table, and the loss.
Program whole_llm(const LayerKind& kind, const LayerKind& other, bool is_tied) {
  constexpr int64_t kVocabulary = 7;
  Module module{.width = kWidth,
                .entry = make_embedding(kVocabulary, kWidth, -1),
                .distinct_layers = {make_transformer_block(kind.shape), make_transformer_block(other.shape)},
                .layers = {0, 0, 1},
                .exit = make_head(kVocabulary, kWidth, make_norm("norm", NormKind::kRms, kWidth, 1e-3), is_tied)};
  const ProgramSizes sizes{.samples = kSamples, .rows = kRows, .normalizes_experts = kind.normalizes};
  const Result<Program> program = program_of(module, sizes, "llm");
  EXPECT_TRUE(program.ok()) << program.error().message();
  return unrolled(*program)->program;
}

TEST(ModelLayers, RandomStrategiesOfWholeModelsAreOneRanks) {
  const std::vector<std::vector<Axis>> meshes = {{{"tp", 2}}, {{"tp", 2}, {"dp", 2}}, {{"tp", 3}}};
  const uint64_t first = first_seed(1);
  const std::vector<LayerKind> kinds = layer_kinds();
  for (uint64_t seed = first; seed < first + draws(14); ++seed) {
    const Program program =
        whole_llm(kinds[seed % kinds.size()], kinds[(seed + 2) % kinds.size()], /*is_tied=*/seed % 2 == 0);
    const Mesh mesh = *Mesh::contiguous(meshes[seed % meshes.size()]);
    Random random(seed);
    const RunStrategy strategy = random_strategy(program, mesh.grid(), random);
    const RunVariant variant{.lengths = *changed_lengths(program, {{"s", between(random, 1, 7)}}),
                             .splits_backward = seed % 3 == 0};
    on_thread_ranks(mesh.grid().num_positions(), [&](World& world) {
      expect_like_one_rank(world, mesh, program, strategy, 1000 * seed, {variant});
    });
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << " on " << mesh.grid().text();
      break;
    }
  }
}

TEST(ModelLayers, RandomStrategiesOfLayersAreOneRanks) {
  const std::vector<std::vector<Axis>> meshes = {{{"tp", 2}}, {{"tp", 3}}, {{"tp", 2}, {"dp", 2}}};
  const uint64_t first = first_seed(1);
  const std::vector<LayerKind> kinds = layer_kinds();
  for (uint64_t seed = first; seed < first + draws(28); ++seed) {
    const LayerKind& kind = kinds[seed % kinds.size()];
    const Mesh mesh = *Mesh::contiguous(meshes[seed % meshes.size()]);
    const Program program = program_of_kind(kind, 2);
    Random random(seed);
    const RunStrategy strategy = random_strategy(program, mesh.grid(), random);
    on_thread_ranks(mesh.grid().num_positions(),
                    [&](World& world) { expect_like_one_rank(world, mesh, program, strategy, 1000 * seed); });
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << kind.name << ", seed " << seed << " on " << mesh.grid().text();
      break;
    }
  }
}

}  // namespace
}  // namespace weft
