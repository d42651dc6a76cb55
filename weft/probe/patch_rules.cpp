#include "weft/probe/patch_rules.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/probe/processor_fields.h"

namespace weft {
namespace {

constexpr IntegerRange kPixelRange{1, int64_t{1} << 40};

void read_limits(Fields& fields, PatchRules& rules) {
  if (fields.has("size")) {
    Fields size = fields.object("size");
    for (const std::string_view key : {"shortest_edge", "min_pixels"}) {
      rules.min_pixels = size.integer_or(key, rules.min_pixels, kPixelRange);
    }
    for (const std::string_view key : {"longest_edge", "max_pixels"}) {
      rules.max_pixels = size.integer_or(key, rules.max_pixels, kPixelRange);
    }
  }
  rules.min_pixels = fields.integer_or("min_pixels", rules.min_pixels, kPixelRange);
  rules.max_pixels = fields.integer_or("max_pixels", rules.max_pixels, kPixelRange);
  if (rules.max_pixels < rules.min_pixels) {
    fields.complain("max_pixels", fmt::format("{} is below the {} of min_pixels", rules.max_pixels, rules.min_pixels));
  }
}

Result<PatchRules> read_rules(const Document& document, std::string_view part, PatchRules rules,
                              ProcessorNames processors) {
  Findings findings(document.source);
  Fields root(document, findings);
  Fields fields = root.has(part) ? root.object(part) : root;
  check_processor(fields, processors);
  rules.patch = fields.integer_or("patch_size", rules.patch, {1, 256});
  rules.merge = fields.integer_or("merge_size", rules.merge, {1, 16});
  rules.temporal_patch = fields.integer_or("temporal_patch_size", rules.temporal_patch, {1, 16});
  read_limits(fields, rules);
  read_pixel_values(fields, rules);
  if (rules.limits_all_frames && fields.flag_or("cap_pixels_per_frame", false))
    rules.max_frame_tokens = fields.integer_or("max_video_tokens", 768, {1, int64_t{1} << 32});
  if (findings.first()) return *findings.first();
  return rules;
}

/// What is limited: pixels of one frame, or of all.
struct FrameLimits {
  double frames = 1;
  double new_frames = 1;  ///< whole patches
  double min_pixels = 0;
  double max_pixels = 0;
};

FrameLimits frame_limits(const PatchRules& rules, int64_t num_frames) {
  FrameLimits limits{.min_pixels = static_cast<double>(rules.min_pixels),
                     .max_pixels = static_cast<double>(rules.max_pixels)};
  if (!rules.limits_all_frames) return limits;
  const auto patch = static_cast<double>(rules.temporal_patch);
  limits.frames = static_cast<double>(num_frames);
  limits.new_frames = std::nearbyint(limits.frames / patch) * patch;
  if (rules.max_frame_tokens > 0) {
    const int64_t most =
        std::min(rules.max_frame_tokens * rules.factor() * rules.factor(), rules.max_pixels / num_frames);
    const auto least = static_cast<int64_t>(limits.min_pixels * 1.05);
    limits.max_pixels = static_cast<double>(std::max(most, least)) * limits.frames;
  }
  return limits;
}

}  // namespace

PatchRules video_rules() {
  return {.min_pixels = 128 * 28 * 28, .max_pixels = 768 * 28 * 28};
}

PatchRules apart_video_rules() {
  return {.patch = 16,
          .min_pixels = 128 * 32 * 32,
          .max_pixels = 768 * 32 * 32,
          .mean = {0.5, 0.5, 0.5},
          .deviation = {0.5, 0.5, 0.5},
          .limits_all_frames = true};
}

Result<PatchRules> read_image_rules(const Document& document, ProcessorNames processors) {
  return read_rules(document, "image_processor", {}, processors);
}

Result<PatchRules> read_video_rules(const Document& document, PatchRules rules, ProcessorNames processors) {
  return read_rules(document, "video_processor", rules, processors);
}

Result<PixelSize> resized_size(const PatchRules& rules, PixelSize size, std::string_view source, int64_t num_frames) {
  constexpr double kMostAspect = 200;
  WEFT_CHECK(size.height > 0 && size.width > 0, "a picture of {} by {}", size.width, size.height);
  auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const auto factor = static_cast<double>(rules.factor());
  if (rules.limits_all_frames) {
    if (num_frames < rules.temporal_patch) {
      return Error{
          .source = std::string(source),
          .problem = fmt::format("is a video of {} frames, and a patch has {}", num_frames, rules.temporal_patch),
          .advice = "Give more frames, or give it as an image."};
    }
    if (height < factor || width < factor) {
      const double scale = std::max(factor / height, factor / width);
      height = std::floor(height * scale);
      width = std::floor(width * scale);
    }
  }
  if (std::max(height, width) / std::min(height, width) > kMostAspect) {
    return Error{.source = std::string(source),
                 .problem = fmt::format("is {} by {} pixels; one side may be at most {} times the other", size.width,
                                        size.height, kMostAspect),
                 .advice = "Cut it into parts."};
  }
  // In double precision and rounded half to even, as Python does it.
  const FrameLimits limits = frame_limits(rules, num_frames);
  const auto [frames, new_frames, min_pixels, max_pixels] = limits;
  double new_height = std::nearbyint(height / factor) * factor;
  double new_width = std::nearbyint(width / factor) * factor;
  if (new_frames * new_height * new_width > max_pixels) {
    const double beta = std::sqrt(frames * height * width / max_pixels);
    new_height = std::max(factor, std::floor(height / beta / factor) * factor);
    new_width = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (new_frames * new_height * new_width < min_pixels) {
    const double beta = std::sqrt(min_pixels / (frames * height * width));
    new_height = std::ceil(height * beta / factor) * factor;
    new_width = std::ceil(width * beta / factor) * factor;
  }
  if (new_height < 1 || new_width < 1) {
    return Error{.source = std::string(source),
                 .problem = fmt::format("is {} by {} pixels, which become none at min_pixels {}", size.width,
                                        size.height, rules.min_pixels),
                 .advice = "Set min_pixels to at least the pixels of one token."};
  }
  return PixelSize{static_cast<int64_t>(new_height), static_cast<int64_t>(new_width)};
}

PatchGrid patch_grid(const PatchRules& rules, PixelSize resized, int64_t num_frames) {
  return {.t = (num_frames + rules.temporal_patch - 1) / rules.temporal_patch,
          .h = resized.height / rules.patch,
          .w = resized.width / rules.patch};
}

}  // namespace weft
