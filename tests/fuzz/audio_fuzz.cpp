#include <span>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/prepare/waveform.h"

using namespace weft;

// libsndfile 1.2.0 forgets a few kilobytes of libvorbis's for some damaged Ogg files.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libvorbis\n";
}

/// Every input is a sound of the length that its header says, or one line that says why not.
int weft::fuzz_audio(const uint8_t* data, size_t size) {
  const MediaLimits limits{.max_file_bytes = 1 << 20, .max_seconds = 60};
  HeaderBytes bytes = HeaderBytes::of({data, size});
  const Result<AudioInfo> clip = probe_audio(bytes, "input", limits);
  const Result<Waveform> sound = decode_audio({data, size}, "input", limits);
  if (!clip) claim_good_message(clip);
  if (!sound) {
    claim_good_message(sound);
    return 0;
  }
  claim(clip.ok() && std::ssize(sound->samples) == clip->frames && sound->rate_hz == clip->rate_hz);
  return 0;
}
