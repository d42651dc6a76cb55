#pragma once

#include <cstdint>

#include "weft/base/json.h"

namespace weft {

/// All that is known of models in tables of measurements.
struct DecoderSizes {
  int64_t width = 0;
  int64_t heads = 0;
  int64_t layers = 0;
  int64_t positions = 0;
  int64_t vocabulary = 0;
};

/// The configuration of a decoder with layer norms, plain MLPs of four times its width, biases and an untied head,
/// which is what a table without further words means.
Json plain_decoder_config(const DecoderSizes& sizes);

}  // namespace weft
