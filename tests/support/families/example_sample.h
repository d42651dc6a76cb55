#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "weft/families/media/rope_index.h"

namespace weft {

// Small samples for tests: tokens are written as runs, with ids that no text token has.
inline constexpr int64_t kText = 7;
inline constexpr int64_t kImage = 901;
inline constexpr int64_t kVideo = 902;
inline constexpr int64_t kAudio = 903;
inline constexpr int64_t kVisionStart = 904;
inline constexpr int64_t kVisionEnd = 905;
inline constexpr int64_t kAudioStart = 906;
inline constexpr int64_t kAudioEnd = 907;

/// Runs of (token, how often).
inline std::vector<int64_t> make_tokens(std::initializer_list<std::pair<int64_t, size_t>> runs) {
  std::vector<int64_t> tokens;
  for (const auto& [token, count] : runs) tokens.insert(tokens.end(), count, token);
  return tokens;
}

inline std::vector<int64_t> values_of(std::span<const int64_t> positions) {
  return {positions.begin(), positions.end()};
}

inline RopeRules example_rules(TimeRule time) {
  return {.time = time,
          .tokens = {.image = kImage,
                     .video = kVideo,
                     .audio = kAudio,
                     .vision_start = kVisionStart,
                     .vision_end = kVisionEnd,
                     .audio_start = kAudioStart,
                     .audio_end = kAudioEnd},
          .merge_size = 2,
          .tokens_per_second = 2,
          .clock = {.positions_per_second = 25, .seconds_per_chunk = 2}};
}

/// Omni's rules with a clock of 4 positions per second and per chunk, so that small clips have several chunks.
inline RopeRules example_clip_rules() {
  RopeRules rules = example_rules(TimeRule::kClock);
  rules.clock = {.positions_per_second = 4, .seconds_per_chunk = 1};
  return rules;
}

}  // namespace weft
