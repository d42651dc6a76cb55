#include "weft/prepare/decode_image.h"

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/prepare/image_codecs.h"
#include "weft/prepare/orientation.h"

namespace weft {
namespace {

/// The fewest bytes that a picture can honestly take, at the best rates of the formats: a header that promises far more
/// pixels than its file could hold is refused before memory is taken for them.
int64_t fewest_bytes(const ImageInfo& image) {
  const int64_t pixels = image.stored_width * image.stored_height;
  switch (image.kind) {
    case ImageKind::kJpeg:
      return pixels / 64 / 100;  // of arithmetic coding: a block takes far more than a hundredth of a byte
    case ImageKind::kPng:
      return pixels / 8 / 1032;  // deflate's best rate, one bit a pixel
    case ImageKind::kWebp:
      return 0;  // a picture of one colour takes a few bytes
  }
  return 0;
}

}  // namespace

Result<Pixels> decode_image(std::span<const uint8_t> file, std::string_view source, const MediaLimits& limits) {
  HeaderBytes bytes = HeaderBytes::of(file);
  WEFT_TRY(const ImageInfo image, probe_image(bytes, source, limits));
  const auto refuse = [&](std::string problem) {
    return Error{.source = std::string(source), .problem = std::move(problem), .advice = "Copy or download it again."};
  };
  if (std::ssize(file) < fewest_bytes(image)) {
    return refuse(fmt::format("promises {} by {} pixels in {} bytes, which cannot hold them", image.stored_width,
                              image.stored_height, file.size()));
  }
  Pixels picture{.height = image.stored_height, .width = image.stored_width};
  picture.rgb.resize(static_cast<size_t>(picture.height * picture.width * 3));
  const auto decode = image.kind == ImageKind::kJpeg  ? &decode_jpeg
                      : image.kind == ImageKind::kPng ? &decode_png
                                                      : &decode_webp;
  if (std::string problem = decode(file, picture); !problem.empty()) return refuse(std::move(problem));
  return oriented(std::move(picture), image.orientation);
}

Result<Pixels> read_image(const std::filesystem::path& path, const MediaLimits& limits) {
  WEFT_TRY(const std::string bytes, read_file(path, static_cast<size_t>(limits.max_file_bytes)));
  return decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path.string(), limits);
}

}  // namespace weft
