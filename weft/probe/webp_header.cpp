#include "weft/probe/exif.h"
#include "weft/probe/image_headers.h"

namespace weft {
namespace {

constexpr int64_t kFirstChunk = 12;
constexpr int64_t kChunkFrame = 8;

int find_orientation(HeaderBytes& bytes) {
  constexpr int64_t kMostChunks = 4096;
  int64_t at = kFirstChunk;
  for (int64_t i = 0; i < kMostChunks && at <= bytes.size() - kChunkFrame; ++i) {
    const int64_t length = bytes.little32(at + 4);
    if (bytes.has(at, "EXIF")) {
      // Some writers put JPEG's mark in front.
      const int64_t mark = bytes.has(at + kChunkFrame, std::string_view("Exif\0\0", 6)) ? 6 : 0;
      return exif_orientation(bytes, at + kChunkFrame + mark, length - mark);
    }
    at += kChunkFrame + length + length % 2;
  }
  return 1;
}

}  // namespace

HeaderFinding read_webp_header(HeaderBytes& bytes) {
  HeaderFinding found{.image = {.kind = ImageKind::kWebp}};
  ImageInfo& image = found.image;
  const int64_t data = kFirstChunk + kChunkFrame;
  if (bytes.has(kFirstChunk, "VP8 ")) {
    if (!bytes.has(data + 3, "\x9d\x01\x2a"))
      found.problem = "is a WebP file whose picture does not begin with a frame";
    image.stored_width = bytes.little16(data + 6) & 0x3FFF;
    image.stored_height = bytes.little16(data + 8) & 0x3FFF;
  } else if (bytes.has(kFirstChunk, "VP8L")) {
    if (bytes.at(data) != 0x2F) found.problem = "is a WebP file whose picture does not begin with a frame";
    const uint32_t sizes = bytes.little32(data + 1);
    image.stored_width = (sizes & 0x3FFF) + 1;
    image.stored_height = (sizes >> 14 & 0x3FFF) + 1;
  } else if (bytes.has(kFirstChunk, "VP8X")) {
    constexpr int kAnimated = 0x02, kHasExif = 0x08;
    const int flags = bytes.at(data);
    if (flags & kAnimated) {
      found.problem = "is an animated WebP, which is no image";
      found.advice = "Give its frames as a video.";
      return found;
    }
    image.stored_width = bytes.little24(data + 4) + 1;
    image.stored_height = bytes.little24(data + 7) + 1;
    if (flags & kHasExif) image.orientation = find_orientation(bytes);
  } else {
    found.problem = "is a WebP file without a picture";
  }
  if (bytes.ran_out()) found.problem = "ends inside its WebP header";
  return found;
}

}  // namespace weft
