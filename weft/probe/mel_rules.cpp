#include "weft/probe/mel_rules.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/fields.h"

namespace weft {

int64_t MelRules::num_frames(int64_t samples) const {
  return (std::min(samples, max_samples()) + kHop - 1) / kHop;
}

Result<MelRules> read_mel_rules(const Document& document) {
  Findings findings(document.source);
  Fields root(document, findings);
  Fields fields = root.has("feature_extractor") ? root.object("feature_extractor") : root;
  const std::string type = fields.text_or("feature_extractor_type", "WhisperFeatureExtractor");
  if (type != "WhisperFeatureExtractor") {
    fields.complain("feature_extractor_type", fmt::format("is {}; WhisperFeatureExtractor is known", type));
  }
  const auto fixed = [&](std::string_view key, int64_t known) {
    if (const int64_t value = fields.integer_or(key, known, {1, 1 << 20}); value != known) {
      fields.complain(key, fmt::format("is {}; the features of Whisper have {}", value, known));
    }
  };
  fixed("sampling_rate", MelRules::kRateHz);
  fixed("n_fft", MelRules::kWindow);
  fixed("hop_length", MelRules::kHop);
  if (const double dither = fields.number_or("dither", 0, {0, 1}); dither != 0) {
    fields.complain("dither", "is not 0; noise is not added to clips", "Set it to 0.");
  }
  MelRules rules;
  // Whisper's own defaults, where the file leaves them out.
  rules.num_mels = fields.integer_or("feature_size", 80, {1, 200});
  rules.chunk_seconds = fields.integer_or("chunk_length", 30, {1, 3600});
  if (findings.first()) return *findings.first();
  return rules;
}

}  // namespace weft
