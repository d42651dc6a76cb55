#include <fmt/format.h>

#include "weft/probe/audio_headers.h"

namespace weft {
namespace {

/// Of what a format says: bytes of one frame, 0 where frames have no size of their own.
int64_t frame_bytes(int format, int64_t channels, int64_t bits) {
  enum Format { kPcm = 1, kFloat = 3, kALaw = 6, kMuLaw = 7 };
  switch (format) {
    case kPcm:
      return bits == 8 || bits == 16 || bits == 24 || bits == 32 ? channels * bits / 8 : 0;
    case kFloat:
      return bits == 32 || bits == 64 ? channels * bits / 8 : 0;
    case kALaw:
    case kMuLaw:
      return channels;
    default:
      return 0;
  }
}

}  // namespace

AudioFinding read_wav_header(HeaderBytes& bytes) {
  constexpr int64_t kChunkFrame = 8, kMostChunks = 4096;
  constexpr int kExtensible = 0xFFFE;
  AudioFinding found{.clip = {.kind = AudioKind::kWav}};
  int64_t bytes_per_frame = 0;
  int64_t at = 12;
  for (int64_t i = 0; i < kMostChunks && at <= bytes.size() - kChunkFrame; ++i) {
    const int64_t length = bytes.little32(at + 4), data = at + kChunkFrame;
    if (bytes.has(at, "fmt ")) {
      int format = bytes.little16(data);
      if (format == kExtensible) format = bytes.little16(data + 24);
      found.clip.channels = bytes.little16(data + 2);
      found.clip.rate_hz = bytes.little32(data + 4);
      const int64_t bits = bytes.little16(data + 14);
      bytes_per_frame = frame_bytes(format, found.clip.channels, bits);
      if (bytes_per_frame == 0 && !bytes.ran_out()) {
        found.problem = fmt::format("is a WAV file of format {} with {} bits, which is not read", format, bits);
        found.advice = "Save it as PCM or as FLAC.";
        return found;
      }
    } else if (bytes.has(at, "data") && bytes_per_frame > 0) {
      // A writer that did not know the length left zero or the largest number.
      const int64_t rest = bytes.size() - data;
      const bool unknown = length == 0 || length >= 0x7FFF'F000;
      if (!unknown && length > rest) {
        found.problem = fmt::format("ends {} bytes before its sound does", length - rest);
        return found;
      }
      found.clip.frames = (unknown ? rest : length) / bytes_per_frame;
      if (bytes.ran_out()) break;
      return found;
    }
    at = data + length + length % 2;
  }
  found.problem = bytes_per_frame == 0 ? "ends inside its WAV header" : "is a WAV file without sound";
  return found;
}

}  // namespace weft
