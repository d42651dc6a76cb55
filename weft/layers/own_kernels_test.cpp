#include "weft/layers/own_kernels.h"

#include <cmath>
#include <functional>
#include <random>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "weft/layers/activation.h"
#include "weft/layers/attention_block.h"
#include "weft/layers/attention_core.h"
#include "weft/layers/linear.h"
#include "weft/layers/loss.h"
#include "weft/layers/moe.h"
#include "weft/layers/norm.h"
#include "weft/tensor/cuda_library.h"

namespace weft {
namespace {

/// bf16 has eight bits: what is rounded a few times is this far off, relative to the largest element.
constexpr double kTolerance = 0.02;

const at::Device kGpu(at::kCUDA, 0);

/// Own kernels through the layers that use them, next to the same layers in double precision on the processor.
class OwnKernels : public testing::Test {
 protected:
  void SetUp() override {
    const auto has_gpu = load_cuda_library();
    if (!has_gpu || !*has_gpu) GTEST_SKIP() << "NO GPU: own kernels are not tested on this machine";
    const auto missing = missing_kernels(kGpu);
    ASSERT_FALSE(missing) << missing->message();
    at::manual_seed(7);
  }

  static at::Tensor numbers(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).to(at::kBFloat16); }
  static ParameterPtr parameter(const at::Tensor& value) {
    auto made = c10::make_intrusive<Parameter>();
    made->value = value.clone().set_requires_grad(true);
    made->gradient_type = value.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    made->spec.pieces = {whole_weight("w", value.sizes().vec())};
    return made;
  }
  static void expect_close(const at::Tensor& found, const at::Tensor& exact, const std::string& what) {
    const at::Tensor own = found.to(at::kCPU).to(at::kDouble);
    ASSERT_EQ(own.sizes(), exact.sizes()) << what;
    if (exact.numel() == 0) return;
    const double largest = exact.abs().max().item<double>();
    const double apart = (own - exact).abs().max().item<double>();
    EXPECT_LE(apart, kTolerance * largest + 1e-6) << what;
    EXPECT_TRUE(at::isfinite(own).all().item<bool>()) << what;
  }

  using Weights = std::vector<ParameterPtr>;
  using Layer = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const Weights& weights)>;
  /// Result, gradients of inputs, gradients of weights.
  static void expect_same(const Layer& layer, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& weights, const std::string& what) {
    const auto run = [&](at::Device device, at::ScalarType type) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& x : inputs) {
        const bool is_number = x.is_floating_point();
        own.push_back(is_number ? x.to(at::kDouble).to(device, type).set_requires_grad(true) : x.to(device));
      }
      Weights parameters;
      for (const at::Tensor& w : weights) parameters.push_back(parameter(w.to(at::kDouble).to(device, type)));
      const at::Tensor y = layer(own, parameters);
      at::manual_seed(11);
      const at::Tensor dy = at::randn(y.sizes(), at::kDouble).to(at::kBFloat16).to(at::kDouble);
      torch::autograd::backward({y}, {dy.to(y.options())});
      std::vector<at::Tensor> results = {y.detach()};
      for (const at::Tensor& x : own)
        if (x.is_floating_point()) results.push_back(x.grad());
      for (const ParameterPtr& p : parameters) results.push_back(p->gradient);
      return results;
    };
    const std::vector<at::Tensor> exact = run(at::kCPU, at::kDouble), found = run(kGpu, at::kBFloat16);
    ASSERT_EQ(found.size(), exact.size());
    for (size_t i = 0; i < exact.size(); ++i) expect_close(found[i], exact[i], what + ", result " + std::to_string(i));
  }
  static std::string shape_text(int64_t rows, int64_t width) {
    return std::to_string(rows) + " rows of " + std::to_string(width);
  }
};

TEST_F(OwnKernels, NormWhatIsAddedUpAndPassItOn) {
  for (const int64_t width : {8, 40, 72, 1000, 1280, 1536, 2048, 2056, 3584, 8192, 8200, 13})
    for (const int64_t rows : {1, 3, 517, 2100}) {
      const bool fits = width % 8 == 0 && width <= kWidestNorm;
      const at::Tensor x = numbers({rows, width}), added = numbers({rows, width}), weight = numbers({width}),
                       bias = numbers({width});
      EXPECT_EQ(has_own_kernels(x.to(kGpu)) && width <= kWidestNorm, fits);
      // Both results go on, with weights of their own, as in a layer.
      const auto both = [](const RowsAndNorm& found) { return found.rows * 0.5 + found.normed; };
      expect_same([&](const auto& in, const auto& w) { return both(add_and_norm(in[0], in[1], w[0], {}, 1e-6)); },
                  {x, added}, {weight}, "rms of a sum, " + shape_text(rows, width));
      expect_same([&](const auto& in, const auto& w) { return both(add_and_norm(in[0], {}, w[0], w[1], 1e-5)); }, {x},
                  {weight, bias}, "layer norm, " + shape_text(rows, width));
      expect_same([&](const auto& in, const auto& w) { return rms_norm(in[0], w[0], 1e-6); }, {x}, {weight},
                  "rms, " + shape_text(rows, width));
    }
}

TEST_F(OwnKernels, Activate) {
  for (const int64_t width : {16, 48, 8960 * 2, 20})
    for (const int64_t rows : {1, 5, 300}) {
      const at::Tensor x = numbers({rows, width}) * 3;
      expect_same([&](const auto& in, const auto&) { return swiglu(in[0]); }, {x}, {}, shape_text(rows, width));
      expect_same([&](const auto& in, const auto&) { return activate(in[0], Activation::kQuickGelu); }, {x}, {},
                  shape_text(rows, width));
    }
}

TEST_F(OwnKernels, SumGradientsOfABias) {
  for (const int64_t width : {8, 264, 1280, 5120, 12})
    for (const int64_t rows : {1, 31, 4099}) {
      const at::Tensor x = numbers({rows, width}), bias = numbers({width});
      expect_same([&](const auto& in, const auto& w) { return add_bias(in[0], w[0]); }, {x}, {bias},
                  shape_text(rows, width));
    }
}

TEST_F(OwnKernels, AddProductsToFp32GradientsUnrounded) {
  const at::Tensor left = numbers({512, 24}).to(kGpu), right = numbers({512, 40}).to(kGpu);
  const ParameterPtr w = parameter(at::zeros({24, 40}, at::kBFloat16).to(kGpu));
  w->gradient = at::zeros({24, 40}, at::TensorOptions(kGpu).dtype(at::kFloat));
  for (int i = 0; i < 3; ++i) w->add_product(left.t(), right);
  const at::Tensor exact = left.to(at::kDouble).t().mm(right.to(at::kDouble)) * 3;
  const double apart = (w->gradient.to(at::kDouble) - exact).abs().max().item<double>();
  EXPECT_LT(apart / exact.abs().max().item<double>(), 1e-5);  // bf16 products would be 2e-3 off
}

TEST_F(OwnKernels, MultiplyExpertsRowsWithoutReadingTheirCounts) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{3, 0, 70, 5}, {0, 0, 0, 129}, {17, 0, 0, 0}, {1, 1, 1, 1}, {0, 0, 0, 0}})
    for (const int64_t out : {24, 136, 20}) {
      int64_t rows = 0;
      std::vector<int64_t> experts;
      for (size_t expert = 0; expert < counts.size(); ++expert) {
        rows += counts[expert];
        experts.insert(experts.end(), static_cast<size_t>(counts[expert]), static_cast<int64_t>(expert));
      }
      const at::Tensor x = numbers({rows, 40}), weight = numbers({std::ssize(counts), out, 40});
      EXPECT_EQ(has_grouped_products(x.to(kGpu), out), out % 8 == 0);
      const at::Tensor sorted = at::tensor(experts, at::kLong).to(kGpu);
      const ExpertCounts on_gpu = ExpertCounts::of_sorted(sorted, std::ssize(counts));
      const at::Tensor numbers_back = on_gpu.tensor().cpu();
      for (size_t i = 0; i < counts.size(); ++i)
        EXPECT_EQ(numbers_back[static_cast<int64_t>(i)].item<int64_t>(), counts[i]);
      expect_same(
          [&](const auto& in, const auto& w) {
            return expert_linear(in[0], w[0], in[0].is_cpu() ? ExpertCounts(counts) : on_gpu, RunContext());
          },
          {x}, {weight}, shape_text(rows, out));
    }
}

TEST_F(OwnKernels, LoseAsMuch) {
  for (const int64_t classes : {8, 1000, 151'936, 33})
    for (const int64_t rows : {1, 7, 65}) {
      const at::Tensor logits = numbers({rows, classes}) * 4;
      const at::Tensor targets = at::randint(classes, {rows}, at::kLong);
      // Logits are used up, so the layer gets a copy; a loss alone is a sum, whose rounding does not show its rows.
      expect_same([&](const auto& in, const auto&) { return cross_entropy_sum(in[0].clone(), in[1]).to(at::kDouble); },
                  {logits, targets}, {}, shape_text(rows, classes));
    }
}

struct AttentionCase {
  HeadCounts heads;
  std::vector<int64_t> lengths;
  AttentionMask mask;
  bool turns = true;
};

TEST_F(OwnKernels, AttendInSegmentsOfEveryKind) {
  const std::vector<AttentionCase> cases = {
      {{4, 4, 64}, {128, 128}, {}},
      {{4, 2, 128}, {200, 200, 200}, {.is_causal = true}},
      {{6, 2, 80}, {1, 77, 300, 3}, {.is_causal = true}},
      {{3, 3, 80}, {64, 64, 64, 17, 64}, {}},
      {{4, 1, 32}, {257, 100}, {.is_causal = true, .window = 50}},
      {{2, 2, 16}, {1}, {.is_causal = true}, false},
      {{4, 2, 24}, {33, 8}, {.is_causal = true}},
      {{4, 4, 72}, {130, 130}, {}},
      {{6, 2, 72}, {1, 77, 300, 3}, {.is_causal = true}},
      {{4, 2, 12}, {33, 8}, {.is_causal = true}},  // heads that fused kernels do not take
  };
  for (const AttentionCase& one : cases) {
    const PackedSegments segments(one.lengths);
    const int64_t rows = segments.num_rows(), half = one.heads.head_dim / 2;
    const at::Tensor qkv = numbers({rows, one.heads.packed_width()});
    const at::Tensor angles = at::arange(rows, at::kDouble).unsqueeze(1) * at::rand({1, half}, at::kDouble);
    for (const AttentionKeeps keeps : {AttentionKeeps::kResults, AttentionKeeps::kNothing}) {
      // Shapes that come often change to other kernels: all of them are tried.
      const int rounds = segments.runs().size() == 1 && keeps == AttentionKeeps::kResults ? 60 : 1;
      for (int round = 0; round < rounds; ++round) {
        if (round > 0 && round < rounds - 1) {
          (void)attention_core(qkv.to(kGpu), one.heads, {}, segments, one.mask);
          continue;
        }
        expect_same(
            [&](const auto& in, const auto&) {
              RotaryTable table;
              if (one.turns) {
                const at::TensorOptions wide =
                    in[0].options().dtype(in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
                table = {angles.cos().to(wide), angles.sin().to(wide)};
              }
              return attention_core(in[0].clone(), one.heads, table, segments, one.mask, keeps);
            },
            {qkv}, {}, "heads of " + std::to_string(one.heads.head_dim) + ", round " + std::to_string(round));
      }
    }
  }
}

/// A ring's blocks: each row's own keys first, then those of rows before it, put together.
TEST_F(OwnKernels, PutBlocksOfARingTogether) {
  constexpr int64_t kRows = 192, kHalf = 96;
  const HeadCounts heads{4, 2, 64};
  using Sees = AttentionBlock::Sees;
  for (const int64_t window : {0, 40}) {
    const at::Tensor qkv = numbers({kRows, heads.packed_width()});
    const at::Tensor dout = numbers({kRows, heads.heads, heads.head_dim});
    std::vector<AttentionBlock> blocks = {
        {.queries = {0, kHalf}, .keys = {0, kHalf}, .sees = Sees::kCausal, .has_own_keys = true},
        {.queries = {kHalf, kRows}, .keys = {kHalf, kRows}, .sees = Sees::kCausal, .has_own_keys = true},
        {.queries = {kHalf, kRows}, .keys = {0, kHalf}}};
    if (window > 0) {
      for (AttentionBlock& block : blocks) {
        block.sees = Sees::kWindow;
        block.window = window;
      }
      // The rows behind the half that still see some before it, and those.
      blocks[2].queries = {kHalf, kHalf + window - 1};
      blocks[2].keys = {kHalf - window + 1, kHalf};
      blocks[2].offset = window - 1;
    }
    const auto run = [&](at::Device device, at::ScalarType type) {
      const at::Tensor rows = qkv.to(at::kDouble).to(device, type), slopes = dout.to(at::kDouble).to(device, type);
      const AttentionParts parts = attention_parts(rows, heads);
      const AttentionKernel kernel = device.is_cpu() ? AttentionKernel::kComposed : kernel_for(rows, heads);
      AttentionState state = empty_state(parts.q);
      for (const AttentionBlock& block : blocks) attend_block(parts, block, heads, state, kernel);
      state.out = state.out.to(type);
      const at::Tensor gradient = at::zeros(rows.sizes(), state.log_sums.options());
      const AttentionParts of_parts = attention_parts(gradient, heads);
      // Where no block writes a gradient first, it is added to zero.
      for (AttentionBlock block : blocks) {
        block.has_own_keys = false;
        attend_block_backward(slopes, parts, block, heads, state, of_parts, kernel);
      }
      return std::vector<at::Tensor>{state.out, state.log_sums, gradient};
    };
    EXPECT_EQ(kernel_for(qkv.to(kGpu), heads), AttentionKernel::kDevice);
    const auto exact = run(at::kCPU, at::kDouble), found = run(kGpu, at::kBFloat16);
    for (size_t i = 0; i < exact.size(); ++i)
      expect_close(found[i], exact[i], "window " + std::to_string(window) + ", result " + std::to_string(i));
  }
}

TEST_F(OwnKernels, KeepAnMlpsInputAlone) {
  for (const bool is_gated : {true, false})
    for (const Activation activation : {Activation::kSilu, Activation::kGelu, Activation::kQuickGelu}) {
      if (is_gated && activation != Activation::kSilu) continue;
      const at::Tensor wide = numbers({70, 96}), weight = numbers({24, is_gated ? 48 : 96}), bias = numbers({24});
      expect_same(
          [&](const auto& in, const auto& w) {
            return activated_linear(in[0], {activation, is_gated}, w[0], w[1], RunContext());
          },
          {wide}, {weight, bias}, "an MLP");
    }
}

}  // namespace
}  // namespace weft
