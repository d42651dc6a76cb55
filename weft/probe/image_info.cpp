#include "weft/probe/image_info.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/probe/image_headers.h"

namespace weft {
namespace {

/// What a file is that is none of ours, for the message.
std::string_view known_mark(HeaderBytes& bytes) {
  if (bytes.size() == 0) return "is empty";
  if (bytes.has(0, "GIF8")) return "is a GIF";
  if (bytes.has(0, "BM")) return "is a BMP image";
  if (bytes.has(0, std::string_view("II*\0", 4)) || bytes.has(0, std::string_view("MM\0*", 4)))
    return "is a TIFF image";
  if (bytes.has(4, "ftypavif")) return "is an AVIF image";
  if (bytes.has(4, "ftyphei") || bytes.has(4, "ftypmif1")) return "is a HEIF image";
  if (bytes.has(4, "ftyp")) return "is a video";
  if (bytes.has(0, "<svg") || bytes.has(0, "<?xml")) return "is an SVG or XML text";
  if (bytes.has(0, "<!DOCTYPE") || bytes.has(0, "<html")) return "is a web page";
  if (bytes.has(0, "version https://git-lfs")) return "is a Git LFS pointer, whose file was not fetched";
  return "is no image that is known";
}

Error refuse(std::string_view source, std::string problem, std::string advice) {
  return {.source = std::string(source), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<Error> find_bad_size(const ImageInfo& image, std::string_view source, const MediaLimits& limits) {
  if (image.stored_width < 1 || image.stored_height < 1) {
    return refuse(
        source,
        fmt::format("is an image of {} by {} pixels, at least one is needed", image.stored_width, image.stored_height),
        "Leave it out, or save it again.");
  }
  // Both are below 2^32, so that the product of doubles tells.
  if (static_cast<double>(image.stored_width) * static_cast<double>(image.stored_height) >
      static_cast<double>(limits.max_pixels)) {
    return refuse(source,
                  fmt::format("promises {} by {} pixels, more than the {} that an image may have", image.stored_width,
                              image.stored_height, with_commas(limits.max_pixels)),
                  "Make it smaller: an image of this size may be a decompression bomb.");
  }
  if (std::max(image.stored_width, image.stored_height) > limits.max_side) {
    return refuse(source,
                  fmt::format("is {} by {} pixels; a side may have at most {}", image.stored_width, image.stored_height,
                              with_commas(limits.max_side)),
                  "Cut it into parts.");
  }
  return std::nullopt;
}

}  // namespace

Result<ImageInfo> probe_image(HeaderBytes& bytes, std::string_view source, const MediaLimits& limits) {
  if (bytes.size() > limits.max_file_bytes) {
    return refuse(source,
                  fmt::format("has {} bytes, more than the {} that a media file may have", with_commas(bytes.size()),
                              with_commas(limits.max_file_bytes)),
                  "Check that this is the file you meant.");
  }
  HeaderFinding found;
  if (bytes.has(0, "\xFF\xD8\xFF")) {
    found = read_jpeg_header(bytes);
  } else if (bytes.has(0, "\x89PNG\r\n\x1A\n")) {
    found = read_png_header(bytes);
  } else if (bytes.has(0, "RIFF") && bytes.has(8, "WEBP")) {
    found = read_webp_header(bytes);
  } else {
    return refuse(source, fmt::format("{}; JPEG, PNG and WebP images are read", known_mark(bytes)),
                  "Convert it, or correct the path.");
  }
  if (!found.problem.empty()) {
    if (found.advice.empty()) found.advice = "Copy or download it again.";
    return refuse(source, std::move(found.problem), std::move(found.advice));
  }
  if (auto error = find_bad_size(found.image, source, limits)) return *std::move(error);
  return found.image;
}

Result<ImageInfo> probe_image(const std::filesystem::path& path, const MediaLimits& limits) {
  WEFT_TRY(HeaderBytes bytes, HeaderBytes::open(path));
  return probe_image(bytes, path.string(), limits);
}

std::string to_string(ImageKind kind) {
  switch (kind) {
    case ImageKind::kJpeg:
      return "JPEG";
    case ImageKind::kPng:
      return "PNG";
    case ImageKind::kWebp:
      return "WebP";
  }
  return "";
}

std::string wrong_extension(const std::filesystem::path& path, ImageKind kind) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  ImageKind named = kind;
  if (extension == ".jpg" || extension == ".jpeg") named = ImageKind::kJpeg;
  if (extension == ".png") named = ImageKind::kPng;
  if (extension == ".webp") named = ImageKind::kWebp;
  const bool is_sound = extension == ".wav" || extension == ".flac" || extension == ".ogg" || extension == ".mp3";
  if (named == kind && !is_sound) return "";
  return fmt::format("is a {} image although its name ends in {}", to_string(kind), extension);
}

}  // namespace weft
