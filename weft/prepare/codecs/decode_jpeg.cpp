#include <algorithm>
#include <memory>
#include <string_view>
#include <turbojpeg.h>
#include <vector>

#include "weft/prepare/image_codecs.h"

namespace weft {
namespace {

struct DecoderCloser {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

/// Whether the end marker stands behind the start of a scan, between which no data looks like it. Without one, libjpeg
/// fills up what is missing with grey.
bool has_end(std::span<const uint8_t> file) {
  constexpr uint8_t kStartOfScan = 0xDA, kEndOfImage = 0xD9;
  size_t at = 2;
  while (at + 4 <= file.size()) {
    const uint8_t marker = file[at + 1];
    if (file[at] != 0xFF || marker == 0xFF || marker == 0) {
      ++at;
    } else if (marker == kStartOfScan) {
      for (; at + 2 <= file.size(); ++at) {
        if (file[at] == 0xFF && file[at + 1] == kEndOfImage) return true;
      }
      return false;
    } else if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD8)) {
      at += 2;
    } else {
      at += 2 + (static_cast<size_t>(file[at + 2]) << 8 | file[at + 3]);
    }
  }
  return false;
}

/// As Pillow has it: ink is stored inverted, and colours are what it leaves of the light.
void colours_of_ink(const std::vector<uint8_t>& cmyk, Pixels& to) {
  const auto times = [](int a, int b) {
    const int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
  };
  uint8_t* out = to.rgb.data();
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const int light = cmyk[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      *out++ = static_cast<uint8_t>(std::clamp(light - times(255 - cmyk[i + c], light), 0, 255));
    }
  }
}

}  // namespace

std::string decode_jpeg(std::span<const uint8_t> file, Pixels& to) {
  if (!has_end(file)) return "ends before its picture does";
  const std::unique_ptr<void, DecoderCloser> decoder(tjInitDecompress());
  if (!decoder) return "cannot be decoded: libjpeg-turbo does not start";
  const auto message = [&] { return std::string("is a damaged JPEG image: ") + tjGetErrorStr2(decoder.get()); };
  int width = 0, height = 0, subsampling = 0, colours = 0;
  if (tjDecompressHeader3(decoder.get(), file.data(), file.size(), &width, &height, &subsampling, &colours) != 0 &&
      tjGetErrorCode(decoder.get()) == TJERR_FATAL) {
    return message();
  }
  if (width != to.width || height != to.height) return "is a JPEG image with two sizes";
  const bool is_ink = colours == TJCS_CMYK || colours == TJCS_YCCK;
  std::vector<uint8_t> ink(is_ink ? to.rgb.size() / 3 * 4 : 0);
  if (tjDecompress2(decoder.get(), file.data(), file.size(), is_ink ? ink.data() : to.rgb.data(), width, 0, height,
                    is_ink ? TJPF_CMYK : TJPF_RGB, TJFLAG_LIMITSCANS) != 0) {
    // Damage that leaves a picture is only a warning, as for Pillow; pixels that are not there are none.
    const std::string_view warning = tjGetErrorStr2(decoder.get());
    if (warning.find("Premature end") != std::string_view::npos) return "ends before its picture does";
    if (tjGetErrorCode(decoder.get()) == TJERR_FATAL) return message();
  }
  if (is_ink) colours_of_ink(ink, to);
  return "";
}

}  // namespace weft
