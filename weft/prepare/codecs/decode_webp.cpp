#include <webp/decode.h>

#include "weft/prepare/image_codecs.h"

namespace weft {

std::string decode_webp(std::span<const uint8_t> file, Pixels& to) {
  int width = 0, height = 0;
  if (!WebPGetInfo(file.data(), file.size(), &width, &height)) return "is a damaged WebP image";
  if (width != to.width || height != to.height) return "is a WebP image with two sizes";
  if (!WebPDecodeRGBInto(file.data(), file.size(), to.rgb.data(), to.rgb.size(), width * 3)) {
    return "is a damaged WebP image, or ends before its picture does";
  }
  return "";
}

}  // namespace weft
