#pragma once

#include <cstdint>

#include "weft/base/document.h"
#include "weft/base/result.h"

namespace weft {

/// How sound becomes log-mel features, as Whisper has it: what preprocessor_config.json says of the feature extractor.
struct MelRules {
  static constexpr int64_t kRateHz = 16'000;
  static constexpr int64_t kWindow = 400;  ///< samples of a frame
  static constexpr int64_t kHop = 160;     ///< samples between frames

  int64_t num_mels = 128;
  int64_t chunk_seconds = 300;  ///< a longer clip is cut off here

  int64_t max_samples() const { return chunk_seconds * kRateHz; }
  /// Frames of a clip of `samples` values at 16 kHz: one for every hop that was begun.
  int64_t num_frames(int64_t samples) const;
  bool operator==(const MelRules&) const = default;
};

/// From preprocessor_config.json, or from the "feature_extractor" of a processor_config.json.
Result<MelRules> read_mel_rules(const Document& document);

}  // namespace weft
