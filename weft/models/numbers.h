#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/layers/activation.h"
#include "weft/models/media/rope_index.h"
#include "weft/spec/model.h"

namespace weft {

/// How rotary frequencies are stretched for longer contexts.
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeNumbers {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;
  double low_frequency_factor = 1;   ///< kLlama3
  double high_frequency_factor = 4;  ///< kLlama3
  double original_positions = 0;     ///< kLlama3 and kYarn
  double beta_fast = 32;             ///< kYarn
  double beta_slow = 1;              ///< kYarn
  bool truncates = true;             ///< kYarn
  double amplitude = 1;              ///< of cosines and sines
  std::vector<int64_t> sections;     ///< frequencies of each position axis in turn; none: one axis
};

/// What a configuration says beyond sizes, which the cost model has no use for.
struct TextNumbers {
  double norm_epsilon = 1e-6;
  RopeNumbers rope;
  double deviation = 0.02;  ///< of fresh weights
  int64_t padding_id = -1;
  int64_t max_positions = 0;
  bool normalizes_expert_weights = false;
  double balance_coefficient = 0;
  std::vector<int64_t> end_ids;  ///< tokens that end a generated text
};

struct VisionNumbers {
  Activation activation = Activation::kQuickGelu;
  double rope_theta = 10000;
  double deviation = 0.02;
  int64_t channels = 3;
  int64_t patch_size = 14;
  int64_t temporal_patch_size = 2;
  int64_t merge_size = 2;
  int64_t window_size = 0;  ///< pixels; 0: no windows
  bool has_separate_qkv = false;

  int64_t patch_elements() const { return channels * temporal_patch_size * patch_size * patch_size; }
};

struct AudioNumbers {
  Activation activation = Activation::kGelu;
  double deviation = 0.02;
  int64_t mel_bins = 128;
  int64_t half_window = 100;
  int64_t max_positions = 1500;
};

struct ModelNumbers {
  TextNumbers text;
  std::optional<VisionNumbers> vision;
  std::optional<AudioNumbers> audio;
  RopeRules media;            ///< which tokens stand for media and how positions are counted
  std::string weight_prefix;  ///< before every weight's name
};

/// A configuration value that Weft does not run, like an activation or a rope type, is an error that names it.
Result<ModelNumbers> read_numbers(const Model& model);

}  // namespace weft
