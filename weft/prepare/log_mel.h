#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/prepare/mel_filters.h"
#include "weft/probe/mel_rules.h"

namespace weft {

/// Makes Whisper's features of clips at 16 kHz. Not for several threads at once: each has its own.
class LogMel {
 public:
  explicit LogMel(const MelRules& rules);

  /// [rules.num_mels, rules.num_frames(samples.size())]. A clip that is longer than the rules' chunk is cut off there,
  /// as the feature extractor does. Frames see silence after the clip; the loudest band, against which quiet ones are
  /// cut, is that of all frames.
  std::vector<float> features(std::span<const float> samples) const;

 private:
  MelRules rules_;
  MelFilters filters_;
  std::vector<float> window_;
};

}  // namespace weft
