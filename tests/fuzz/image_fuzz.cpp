#include <span>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/prepare/decode_image.h"

using namespace weft;

/// Every input is a picture of the size that its header says, or one line that says why not.
int weft::fuzz_image(const uint8_t* data, size_t size) {
  const MediaLimits limits{.max_file_bytes = 1 << 20, .max_pixels = 1 << 20};
  HeaderBytes bytes = HeaderBytes::of({data, size});
  const Result<ImageInfo> image = probe_image(bytes, "input", limits);
  const Result<Pixels> picture = decode_image({data, size}, "input", limits);
  if (!image) claim_good_message(image);
  if (!picture) {
    claim_good_message(picture);
    return 0;
  }
  claim(image.ok() && picture->width == image->width() && picture->height == image->height());
  claim(std::ssize(picture->rgb) == picture->width * picture->height * 3);
  return 0;
}
