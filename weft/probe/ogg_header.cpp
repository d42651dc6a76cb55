#include <algorithm>
#include <optional>

#include "weft/probe/audio_headers.h"

namespace weft {
namespace {

constexpr int64_t kPageHeader = 27;
constexpr int64_t kOpusRateHz = 48'000;

/// The last position that a page of the first page's stream names. A page has at most 65,307 bytes.
std::optional<int64_t> last_position(HeaderBytes& bytes) {
  constexpr int64_t kLongestPage = 65'307;
  const uint32_t serial = bytes.little32(14);
  const int64_t first = std::max<int64_t>(0, bytes.size() - 2 * kLongestPage);
  for (int64_t begin = bytes.size(); begin > first;) {
    // Forwards inside each piece, so that a piece is one read from disk.
    const int64_t end = begin;
    begin = std::max(first, end - 256);
    std::optional<int64_t> last;
    for (int64_t at = begin; at < end; ++at) {
      if (bytes.at(at) != 'O' || at > bytes.size() - kPageHeader || !bytes.has(at, "OggS")) continue;
      const auto position = static_cast<int64_t>(bytes.little64(at + 6));
      if (bytes.little32(at + 14) == serial && position >= 0) last = position;
    }
    if (last) return last;
  }
  return std::nullopt;
}

}  // namespace

AudioFinding read_ogg_header(HeaderBytes& bytes) {
  AudioFinding found;
  AudioInfo& clip = found.clip;
  const int64_t packet = kPageHeader + bytes.at(26);
  int64_t skipped = 0, position_rate_hz = 0;
  if (bytes.has(packet, "\x01vorbis")) {
    clip.kind = AudioKind::kVorbis;
    clip.channels = bytes.at(packet + 11);
    clip.rate_hz = position_rate_hz = bytes.little32(packet + 12);
  } else if (bytes.has(packet, "OpusHead")) {
    clip.kind = AudioKind::kOpus;
    clip.channels = bytes.at(packet + 9);
    skipped = bytes.little16(packet + 10);
    position_rate_hz = kOpusRateHz;
    // Opus is decoded at the smallest of its rates that is not below that of the original.
    const int64_t original = bytes.little32(packet + 12);
    clip.rate_hz = kOpusRateHz;
    for (const int64_t rate : {24'000, 16'000, 12'000, 8'000}) {
      if (original > 0 && original <= rate) clip.rate_hz = rate;
    }
  } else {
    found.problem = "is an Ogg file of neither Vorbis nor Opus";
    found.advice = "Convert it to FLAC.";
    return found;
  }
  const std::optional<int64_t> last = last_position(bytes);
  if (bytes.ran_out()) {
    found.problem = "ends inside its Ogg header";
  } else if (!last || *last <= skipped || clip.rate_hz < 1) {
    found.problem = "is an Ogg file that does not say how long it is";
  } else {
    clip.frames = (*last - skipped) / (position_rate_hz / clip.rate_hz);
  }
  return found;
}

}  // namespace weft
