#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/prepare/pixels.h"

namespace weft {

// Each fills `to`, whose size is that of the header and whose memory is there. Returns what is wrong, or nothing.
std::string decode_jpeg(std::span<const uint8_t> file, Pixels& to);
std::string decode_png(std::span<const uint8_t> file, Pixels& to);
std::string decode_webp(std::span<const uint8_t> file, Pixels& to);

}  // namespace weft
