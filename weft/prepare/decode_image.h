#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "weft/base/result.h"
#include "weft/prepare/pixels.h"
#include "weft/probe/image_info.h"

namespace weft {

/// The picture in a JPEG, PNG or WebP file, as Pillow's convert("RGB") has it after its orientation was applied: alpha
/// is dropped, grey and palettes become colours. A file that ends early is an error, as is one over the limits.
Result<Pixels> decode_image(std::span<const uint8_t> file, std::string_view source, const MediaLimits& limits = {});
Result<Pixels> read_image(const std::filesystem::path& path, const MediaLimits& limits = {});

}  // namespace weft
