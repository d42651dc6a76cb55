#pragma once

#include <optional>
#include <string>

#include "weft/probe/header_bytes.h"
#include "weft/probe/image_info.h"

namespace weft {

/// What one format's header gives: an image, or why there is none.
struct HeaderFinding {
  ImageInfo image;
  std::string problem;  ///< empty where there is an image
  std::string advice;
};

// Each is called on bytes that begin with the format's mark.
HeaderFinding read_jpeg_header(HeaderBytes& bytes);
HeaderFinding read_png_header(HeaderBytes& bytes);
HeaderFinding read_webp_header(HeaderBytes& bytes);

}  // namespace weft
