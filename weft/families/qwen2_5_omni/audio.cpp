#include "weft/families/qwen2_5_omni/audio.h"

#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

// Fixed by the family: 16 kHz audio in steps of 160 samples, two convolutions of width 3, the second with stride 2,
// and an average over pairs of positions at the end.
constexpr int64_t kMelFramesPerSecond = 100;
constexpr int64_t kConvolutionTaps = 3;
constexpr int64_t kConvolutionStride = 2;
constexpr int64_t kPooledPositions = 2;
constexpr double kAudioEpsilon = 1e-5;

WeightTable audio_weight_table(int64_t mel_bins, int64_t width) {
  return {
      {"convolution.mel", {.names = {"conv1"}, .row_dims = {mel_bins, kConvolutionTaps}}},
      {"convolution.stride", {.names = {"conv2"}, .row_dims = {width, kConvolutionTaps}}},
      {"attention.norm", {{"self_attn_layer_norm"}}},
      {"attention.qkv",
       {.names = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
        .bias_names = {"self_attn.q_proj", "", "self_attn.v_proj"}}},  // keys have no bias
      {"attention.out", {{"self_attn.out_proj"}}},
      {"mlp.norm", {{"final_layer_norm"}}},
      {"mlp.up", {{"fc1"}}},
      {"mlp.down", {{"fc2"}}},
      {"norm", {{"ln_post"}}},
      {"projection", {{"proj"}}},
      {"clip_marks", {{"audio_bos_eos_token"}}},
  };
}

}  // namespace

Module read_omni_audio(Fields& config, int64_t llm_width, const std::string& prefix, DeclaredModel& model) {
  const int64_t mel_bins = config.integer_or("num_mel_bins", 128, kWidthRange);
  const int64_t width = config.integer_or("d_model", 1280, kWidthRange);
  const int64_t num_layers = config.integer_or("encoder_layers", 32, kLayerRange);
  const int64_t heads = config.integer_or("encoder_attention_heads", 20, kHeadRange);
  const int64_t intermediate = config.integer_or("encoder_ffn_dim", 5120, kIntermediateRange);
  const int64_t window = config.integer_or("n_window", 100, kWindowRange);
  const int64_t output_width = config.integer_or("output_dim", 3584, kWidthRange);
  const Activation activation = read_activation(config, "activation_function", "gelu");
  if (width % 2 != 0 || width < 4) {
    config.complain(
        "d_model", fmt::format("is {}; positions are sines and cosines, so an even number from 4 on is needed", width));
  }
  check_heads_divide(config, "encoder_attention_heads", heads, "d_model", width);
  if (output_width != llm_width) {
    config.complain("output_dim",
                    fmt::format("is {}, but the language model's hidden_size is {}", output_width, llm_width),
                    "Audio embeddings take the place of token embeddings, so the two must be equal.");
  }

  const double behind = config.number_or("dropout", 0, kProbabilityRange);
  ModuleBuilder builder;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    builder.add_layer(
        {.name = "layer",
         .width = width,
         .norm = NormKind::kLayer,
         .epsilon = kAudioEpsilon,
         .attention = {.attention = {.heads = heads,
                                     .kv_heads = heads,
                                     .head_dim = width / heads,
                                     .mask = Mask::kWindowed,
                                     .window = window},
                       .q_bias = width,
                       .v_bias = width,
                       .out_bias = width,
                       .has_rotary = false},
         .mlp = {.intermediate = intermediate, .is_gated = false, .has_bias = true, .activation = activation},
         .dropout = {.in_attention = config.number_or("attention_dropout", 0, kProbabilityRange),
                     .behind_attention = behind,
                     .in_mlp = config.number_or("activation_dropout", 0, kProbabilityRange),
                     .behind_mlp = behind}});
  }

  const RowsPerToken mel_rows{.numerator = kConvolutionStride};
  const RowsPerToken pooled_rows{.numerator = 1, .denominator = kPooledPositions};
  Module module = builder.take();
  module.kind = ModuleKind::kAudio;
  module.width = width;
  module.output_width = output_width;
  module.output_rows = pooled_rows;
  module.entry = {
      .name = "convolutions",
      .ops = {{.name = "convolution.mel",
               .shape = Matmul{.in = kConvolutionTaps * mel_bins, .out = width, .bias_elements = width},
               .rows = mel_rows,
               .saved = {.whole = kConvolutionTaps * mel_bins}},
              {.name = "convolution.mel_activation",
               .shape = Pointwise{.elements_in = width, .elements_out = width, .activation = Activation::kGelu},
               .rows = mel_rows,
               .saved = {.whole = width}},
              {.name = "convolution.stride",
               .shape = Matmul{.in = kConvolutionTaps * width, .out = width, .bias_elements = width},
               .saved = {.whole = kConvolutionTaps * width}},
              {.name = "convolution.stride_activation",
               .shape = Pointwise{.elements_in = width, .elements_out = width, .activation = Activation::kGelu},
               .saved = {.whole = width}}}};
  module.exit = {
      .name = "pooling",
      .ops = {{.name = "pool",
               .shape = Pointwise{.elements_in = kPooledPositions * width, .elements_out = width},
               .rows = pooled_rows},
              [&] {
                Op norm = make_norm("norm", NormKind::kLayer, width, kAudioEpsilon);
                norm.rows = pooled_rows;
                return norm;
              }(),
              {.name = "projection",
               .shape = Matmul{.in = width, .out = output_width, .bias_elements = output_width},
               .rows = pooled_rows,
               .saved = {.whole = width}},
              // Marks the begin and end of a clip; two rows a clip are too few to price.
              {.name = "clip_marks", .shape = Lookup{.entries = 2, .width = output_width}, .rows = {.numerator = 0}}}};
  module.network = "audio encoder";
  const std::string path = prefix + "audio_tower.";
  module.paths = {.entry = path, .layer = path + "layers.{}.", .exit = path};
  module.deviation = config.number_or("initializer_range", 0.02, {0, 1e3});
  name_weights(module, audio_weight_table(mel_bins, width));
  model.media.mel_frames_per_second = kMelFramesPerSecond;
  model.media.mel_frames_per_audio_position = kConvolutionStride;
  model.media.audio_positions_per_embedding = kPooledPositions;
  model.numbers.audio = {.mel_bins = mel_bins,
                         .half_window = window,
                         .max_positions = config.integer_or("max_source_positions", 1500, kWindowRange)};
  return module;
}

}  // namespace weft
