#include "weft/families/parts/multimodal_text.h"

namespace weft {
namespace {

constexpr TextSizes kNestedSizes{.vocabulary = 152064, .width = 8192, .intermediate = 29568, .layers = 80, .heads = 64};
constexpr TextDefaults kNestedDefaults{.norm_epsilon = 1e-5, .theta = 1e6, .has_axes = true};

}  // namespace

TextConfig read_multimodal_text(Fields& config, const std::optional<TextSizes>& sizes, int64_t default_kv_heads,
                                int64_t default_window_layers, const TextDefaults& defaults, ModelNumbers& numbers) {
  TextConfig text = read_text_sizes(config, sizes);
  text.heads.head_dim = derived_head_dim(config, text);
  read_kv_heads(config, text, default_kv_heads);
  text.has_qkv_bias = true;
  text.windows = read_windows_by_layer(config, text.num_layers, default_window_layers);
  read_intermediate(config, text, sizes);
  numbers.llm = read_text_numbers(config, defaults, text);
  return text;
}

TextConfig read_nested_text(Fields& config, DeclaredModel& model) {
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  if (!config.has("text_config"))
    return read_multimodal_text(config, std::nullopt, 8, 80, kNestedDefaults, model.numbers);
  Fields text = config.object("text_config");
  // Files from before transformers 5 tie in the inner configuration.
  model.has_tied_embeddings |= text.flag_or("tie_word_embeddings", false);
  return read_multimodal_text(text, kNestedSizes, 8, 80, kNestedDefaults, model.numbers);
}

}  // namespace weft
