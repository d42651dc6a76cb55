#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/probe/header_bytes.h"
#include "weft/probe/media_limits.h"

namespace weft {

enum class ImageKind { kJpeg, kPng, kWebp };

/// What an image's header says.
struct ImageInfo {
  ImageKind kind = ImageKind::kJpeg;
  int64_t stored_width = 0;
  int64_t stored_height = 0;
  int orientation = 1;  ///< EXIF's, 1 to 8: how the stored pixels are to be turned

  /// As it is shown.
  int64_t width() const { return orientation >= 5 ? stored_height : stored_width; }
  int64_t height() const { return orientation >= 5 ? stored_width : stored_height; }
  bool operator==(const ImageInfo&) const = default;
};

/// Kind, size and orientation, by content and from the header alone. `source` is what errors call it.
Result<ImageInfo> probe_image(HeaderBytes& bytes, std::string_view source, const MediaLimits& limits = {});
Result<ImageInfo> probe_image(const std::filesystem::path& path, const MediaLimits& limits = {});

/// "JPEG".
std::string to_string(ImageKind kind);

/// "is a PNG image although its name ends in .jpg", or nothing where name and content agree or the name says nothing.
std::string wrong_extension(const std::filesystem::path& path, ImageKind kind);

}  // namespace weft
