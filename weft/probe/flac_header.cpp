#include "weft/probe/audio_headers.h"

namespace weft {

AudioFinding read_flac_header(HeaderBytes& bytes) {
  AudioFinding found{.clip = {.kind = AudioKind::kFlac}};
  constexpr int kStreamInfo = 0;
  if ((bytes.at(4) & 0x7F) != kStreamInfo) {
    found.problem = "is a FLAC file that does not begin with its stream's description";
    return found;
  }
  // From byte 18 on: 20 bits of rate, 3 of channels - 1, 5 of bits - 1, 36 of frames.
  const uint32_t front = bytes.big32(18);
  found.clip.rate_hz = front >> 12;
  found.clip.channels = (front >> 9 & 7) + 1;
  found.clip.frames = static_cast<int64_t>(bytes.at(21) & 0x0F) << 32 | bytes.big32(22);
  if (bytes.ran_out()) {
    found.problem = "ends inside its FLAC header";
  } else if (found.clip.frames == 0) {
    found.problem = "is a FLAC file that does not say how long it is";
    found.advice = "Encode it again: encoders that write to a pipe leave the length out.";
  }
  return found;
}

}  // namespace weft
