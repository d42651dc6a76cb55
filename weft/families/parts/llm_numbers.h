#pragma once

#include <array>

#include "weft/families/parts/text_config.h"

namespace weft {

/// What Hugging Face assumes where a configuration is silent.
struct TextDefaults {
  double norm_epsilon = 1e-6;
  double theta = 10000;
  int64_t max_positions = 32768;
  bool has_axes = false;                           ///< positions on three axes: time, height and width
  std::array<int64_t, 3> sections = {16, 24, 24};  ///< frequencies of each
  bool interleaves_axes = false;
};

/// Reads what a text configuration says beyond sizes: the norms' epsilon into `text`, all else into the result. A value
/// that Weft does not run, like an activation or a rope type, is named.
LlmNumbers read_text_numbers(Fields& config, const TextDefaults& defaults, TextConfig& text);

Activation read_activation(Fields& config, std::string_view key, const std::string& fallback);
/// Gated MLPs have one activation.
void check_gated_activation(Fields& config);

/// Probabilities of dropout: not everything.
inline constexpr NumberRange kProbabilityRange{0, 0.999};
/// Ids of tokens that must be given, or have a default.
inline constexpr IntegerRange kTokenIdRange{0, int64_t{1} << 31};
inline constexpr NumberRange kPositiveRange{1e-30, 1e30};

std::vector<int64_t> read_end_ids(Fields& config);

}  // namespace weft
