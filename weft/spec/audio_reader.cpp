#include <fmt/format.h>

#include "weft/spec/encoder_readers.h"
#include "weft/spec/limits.h"
#include "weft/spec/module_builder.h"
#include "weft/spec/transformer_block.h"

namespace weft {
namespace {

// Fixed by the family: 16 kHz audio in steps of 160 samples, two convolutions of width 3, the second with stride 2,
// and an average over pairs of positions at the end.
constexpr int64_t kMelFramesPerSecond = 100;
constexpr int64_t kConvolutionTaps = 3;
constexpr int64_t kConvolutionStride = 2;
constexpr int64_t kPooledPositions = 2;

}  // namespace

Module read_qwen2_5_audio(Fields& config, int64_t llm_width, MediaGeometry& media) {
  const int64_t mel_bins = config.integer_or("num_mel_bins", 128, kWidthRange);
  const int64_t width = config.integer_or("d_model", 1280, kWidthRange);
  const int64_t num_layers = config.integer_or("encoder_layers", 32, kLayerRange);
  const int64_t heads = config.integer_or("encoder_attention_heads", 20, kHeadRange);
  const int64_t intermediate = config.integer_or("encoder_ffn_dim", 5120, kIntermediateRange);
  const int64_t window = config.integer_or("n_window", 100, kWindowRange);
  const int64_t output_width = config.integer_or("output_dim", 3584, kWidthRange);
  check_heads_divide(config, "encoder_attention_heads", heads, "d_model", width);
  if (output_width != llm_width) {
    config.complain("output_dim",
                    fmt::format("is {}, but the language model's hidden_size is {}", output_width, llm_width),
                    "Audio embeddings take the place of token embeddings, so the two must be equal.");
  }

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    builder.add_layer({.name = "layer",
                       .width = width,
                       .norm = NormKind::kLayer,
                       .attention = {.attention = {.heads = heads,
                                                   .kv_heads = heads,
                                                   .head_dim = width / heads,
                                                   .mask = Mask::kWindowed,
                                                   .window = window},
                                     .q_bias = width,
                                     .v_bias = width,
                                     .out_bias = width,
                                     .has_rotary = false},
                       .mlp = {.intermediate = intermediate, .is_gated = false, .has_bias = true}});
  }

  const RowsPerToken mel_rows{.numerator = kConvolutionStride};
  const RowsPerToken pooled_rows{.numerator = 1, .denominator = kPooledPositions};
  Module module = builder.take();
  module.kind = ModuleKind::kAudio;
  module.width = width;
  module.output_width = output_width;
  module.output_rows = pooled_rows;
  module.entry = {.name = "convolutions",
                  .ops = {{.name = "convolution.mel",
                           .shape = Matmul{.in = kConvolutionTaps * mel_bins, .out = width, .bias_elements = width},
                           .rows = mel_rows,
                           .saved = {.whole = kConvolutionTaps * mel_bins}},
                          {.name = "convolution.mel_activation",
                           .shape = Pointwise{.elements_in = width, .elements_out = width},
                           .rows = mel_rows,
                           .saved = {.whole = width}},
                          {.name = "convolution.stride",
                           .shape = Matmul{.in = kConvolutionTaps * width, .out = width, .bias_elements = width},
                           .saved = {.whole = kConvolutionTaps * width}},
                          {.name = "convolution.stride_activation",
                           .shape = Pointwise{.elements_in = width, .elements_out = width},
                           .saved = {.whole = width}}}};
  module.exit = {
      .name = "pooling",
      .ops = {{.name = "pool",
               .shape = Pointwise{.elements_in = kPooledPositions * width, .elements_out = width},
               .rows = pooled_rows},
              [&] {
                Op norm = make_norm("norm", NormKind::kLayer, width);
                norm.rows = pooled_rows;
                return norm;
              }(),
              {.name = "projection",
               .shape = Matmul{.in = width, .out = output_width, .bias_elements = output_width},
               .rows = pooled_rows,
               .saved = {.whole = width}},
              // Marks the begin and end of a clip; two rows a clip are too few to price.
              {.name = "clip_marks", .shape = Lookup{.entries = 2, .width = output_width}, .rows = {.numerator = 0}}}};
  media.mel_frames_per_second = kMelFramesPerSecond;
  media.mel_frames_per_audio_position = kConvolutionStride;
  media.audio_positions_per_embedding = kPooledPositions;
  return module;
}

}  // namespace weft
