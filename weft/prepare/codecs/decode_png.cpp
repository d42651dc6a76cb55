#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <png.h>
#include <vector>

#include "weft/prepare/image_codecs.h"

namespace weft {
namespace {

/// What libpng's calls share. It outlives them all: an error jumps out of C code, past no destructor.
struct PngReading {
  std::span<const uint8_t> rest;
  char message[128] = "";
  std::vector<png_bytep> rows;
  std::vector<uint8_t> deep;  ///< rows of 16-bit grey, which Pillow does not scale but clips
};

void read_part(png_structp png, png_bytep to, size_t size) {
  auto* reading = static_cast<PngReading*>(png_get_io_ptr(png));
  if (size > reading->rest.size()) png_error(png, "it ends before its picture does");
  std::memcpy(to, reading->rest.data(), size);
  reading->rest = reading->rest.subspan(size);
}

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto* reading = static_cast<PngReading*>(png_get_error_ptr(png));
  std::strncpy(reading->message, text, sizeof reading->message - 1);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

/// Settings for 8-bit rows of red, green and blue; false where the picture is 16-bit grey.
bool ask_for_colours(png_structp png, png_infop info) {
  const int colours = png_get_color_type(png, info), bits = png_get_bit_depth(png, info);
  if (colours == PNG_COLOR_TYPE_GRAY && bits == 16) {
    png_set_swap(png);
    return false;
  }
  if (colours == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (colours == PNG_COLOR_TYPE_GRAY && bits < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (bits == 16) png_set_strip_16(png);
  png_set_strip_alpha(png);
  if (!(colours & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
  return true;
}

bool read_rows(png_structp png, png_infop info, PngReading& reading, Pixels& to) {
  if (setjmp(png_jmpbuf(png))) return false;  // NOLINT(cert-err52-cpp): libpng's way
  png_set_read_fn(png, &reading, &read_part);
  png_set_user_limits(png, 0x7FFFFFFF, 0x7FFFFFFF);  // the number of pixels was judged before
  png_set_chunk_malloc_max(png, 16u << 20);
  png_set_chunk_cache_max(png, 128);
  png_read_info(png, info);
  if (png_get_image_width(png, info) != to.width || png_get_image_height(png, info) != to.height) {
    png_error(png, "it has two sizes");
  }
  const bool in_colour = ask_for_colours(png, info);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  if (row_bytes != static_cast<size_t>(to.width) * (in_colour ? 3 : 2))
    png_error(png, "its rows have a strange length");
  reading.rows.resize(static_cast<size_t>(to.height));
  if (!in_colour) reading.deep.resize(row_bytes * static_cast<size_t>(to.height));
  for (size_t y = 0; y < reading.rows.size(); ++y) {
    reading.rows[y] = in_colour ? to.row(static_cast<int64_t>(y)) : reading.deep.data() + y * row_bytes;
  }
  png_read_image(png, reading.rows.data());
  png_read_end(png, nullptr);
  return true;
}

}  // namespace

std::string decode_png(std::span<const uint8_t> file, Pixels& to) {
  PngReading reading{.rest = file};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, &on_error, &on_warning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool done = info && read_rows(png, info, reading, to);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!done) return std::string("is a damaged PNG image: ") + reading.message;
  for (size_t i = 0; i < reading.deep.size() / 2; ++i) {
    uint16_t value = 0;
    std::memcpy(&value, reading.deep.data() + 2 * i, sizeof value);
    std::fill_n(to.rgb.data() + 3 * i, 3, static_cast<uint8_t>(std::min<int>(value, 255)));
  }
  return "";
}

}  // namespace weft
