#include "weft/probe/exif.h"
#include "weft/probe/image_headers.h"

namespace weft {
namespace {

bool starts_frame(int marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

bool has_no_length(int marker) {
  return marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8);
}

}  // namespace

HeaderFinding read_jpeg_header(HeaderBytes& bytes) {
  constexpr int kStartOfScan = 0xDA, kEndOfImage = 0xD9, kExif = 0xE1;
  HeaderFinding found{.image = {.kind = ImageKind::kJpeg}};
  ImageInfo& image = found.image;
  bool has_frame = false, has_exif = false;
  int64_t at = 2;
  while (!bytes.ran_out()) {
    if (bytes.at(at) != 0xFF) {
      ++at;  // bytes between segments are skipped, as by libjpeg
      continue;
    }
    while (bytes.at(at) == 0xFF) ++at;
    const int marker = bytes.at(at++);
    if (marker == 0 || has_no_length(marker)) continue;
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    const int64_t length = bytes.big16(at);
    if (length < 2) {
      found.problem = "has a JPEG segment that is shorter than its own length";
      return found;
    }
    if (starts_frame(marker) && !has_frame) {
      has_frame = true;
      image.stored_height = bytes.big16(at + 3);
      image.stored_width = bytes.big16(at + 5);
      const int bits = bytes.at(at + 2);
      if (bits != 8 && !bytes.ran_out()) {
        found.problem = "is a JPEG image of " + std::to_string(bits) + " bits, of which only 8 are read";
        found.advice = "Save it again with 8 bits, or as PNG.";
        return found;
      }
    } else if (marker == kExif && !has_exif && bytes.has(at + 2, std::string_view("Exif\0\0", 6))) {
      has_exif = true;
      image.orientation = exif_orientation(bytes, at + 8, length - 8);
    }
    at += length;
  }
  if (bytes.ran_out()) {
    found.problem = "ends inside its JPEG header";
  } else if (!has_frame) {
    found.problem = "is a JPEG file without an image";
  }
  return found;
}

}  // namespace weft
