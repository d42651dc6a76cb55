#include "weft/probe/exif.h"
#include "weft/probe/image_headers.h"

namespace weft {

HeaderFinding read_png_header(HeaderBytes& bytes) {
  // A chunk is length, name, data and a checksum.
  constexpr int64_t kFirstChunk = 8, kChunkFrame = 12, kHeaderData = 13;
  constexpr int64_t kMostChunks = 8192;
  HeaderFinding found{.image = {.kind = ImageKind::kPng}};
  ImageInfo& image = found.image;
  if (bytes.big32(kFirstChunk) != kHeaderData || !bytes.has(kFirstChunk + 4, "IHDR")) {
    found.problem = bytes.ran_out() ? "ends inside its PNG header" : "is a PNG file that does not begin with a header";
    return found;
  }
  image.stored_width = bytes.big32(kFirstChunk + 8);
  image.stored_height = bytes.big32(kFirstChunk + 12);
  if (bytes.ran_out()) {
    found.problem = "ends inside its PNG header";
    return found;
  }
  // EXIF may stand before the pixels or after them.
  int64_t at = kFirstChunk + kChunkFrame + kHeaderData;
  for (int64_t i = 0; i < kMostChunks && at <= bytes.size() - kChunkFrame; ++i) {
    const int64_t length = bytes.big32(at);
    if (bytes.has(at + 4, "eXIf")) {
      image.orientation = exif_orientation(bytes, at + 8, length);
      break;
    }
    if (bytes.has(at + 4, "IEND")) break;
    at += kChunkFrame + length;
  }
  return found;
}

}  // namespace weft
