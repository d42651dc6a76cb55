#pragma once

#include "weft/families/parts/llm_numbers.h"

namespace weft {

/// What the language models of multimodal families share: biases of queries, keys and values, positions on three axes.
/// Sizes are needed where `sizes` has none.
TextConfig read_multimodal_text(Fields& config, const std::optional<TextSizes>& sizes, int64_t default_kv_heads,
                                int64_t default_window_layers, const TextDefaults& defaults, ModelNumbers& numbers);

/// Of vision-language models: old files have these fields at the root, new ones under text_config.
TextConfig read_nested_text(Fields& config, DeclaredModel& model);

}  // namespace weft
