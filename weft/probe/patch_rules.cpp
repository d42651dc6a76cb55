#include "weft/probe/patch_rules.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/fields.h"

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

void read_three(Fields& fields, std::string_view key, std::array<double, 3>& to, double smallest) {
  const Json* value = fields.raw(key);
  if (!value) return;
  bool good = value->is_array() && value->size() == 3;
  for (size_t i = 0; good && i < 3; ++i) {
    good =
        (*value)[i].is_number() && std::abs((*value)[i].get<double>()) <= 1000 && (*value)[i].get<double>() >= smallest;
    if (good) to[i] = (*value)[i].get<double>();
  }
  if (!good) fields.complain(key, "must be a list of three numbers, one for each colour");
}

void require_step(Fields& fields, std::string_view key) {
  if (!fields.flag_or(key, true)) {
    fields.complain(key, "is false; images are always converted, resized, scaled and normalised",
                    "Set it to true, or leave it out.");
  }
}

Result<PatchRules> read_rules(const Document& document, std::string_view part, PatchRules rules) {
  Findings findings(document.source);
  Fields root(document, findings);
  Fields fields = root.has(part) ? root.object(part) : root;
  constexpr int64_t kBicubic = 3;
  for (const std::string_view key : {"image_processor_type", "video_processor_type"}) {
    const std::string type = fields.text_or(key, "Qwen2VL");
    if (!type.starts_with("Qwen2VL") && !type.starts_with("Qwen2_5")) {
      fields.complain(key, fmt::format("is {}; Qwen2-VL's way of making patches is known", type),
                      "Use a model of Qwen2-VL, Qwen2.5-VL or Qwen2.5-Omni.");
    }
  }
  rules.patch = fields.integer_or("patch_size", rules.patch, {1, 256});
  rules.merge = fields.integer_or("merge_size", rules.merge, {1, 16});
  rules.temporal_patch = fields.integer_or("temporal_patch_size", rules.temporal_patch, {1, 16});
  read_limits(fields, rules);
  read_three(fields, "image_mean", rules.mean, -1000);
  read_three(fields, "image_std", rules.deviation, 1e-6);
  rules.rescale = fields.number_or("rescale_factor", rules.rescale, {1e-9, 1e9});
  if (const int64_t resample = fields.integer_or("resample", kBicubic, {0, 5}); resample != kBicubic) {
    fields.complain("resample", fmt::format("is {}; 3, bicubic, is what Qwen's models use", resample));
  }
  for (const std::string_view key : {"do_resize", "do_rescale", "do_normalize"}) require_step(fields, key);
  if (findings.first()) return *findings.first();
  return rules;
}

}  // namespace

PatchRules video_rules() {
  return {.min_pixels = 128 * 28 * 28, .max_pixels = 768 * 28 * 28};
}

Result<PatchRules> read_image_rules(const Document& document) {
  return read_rules(document, "image_processor", {});
}

Result<PatchRules> read_video_rules(const Document& document) {
  return read_rules(document, "video_processor", video_rules());
}

Result<PixelSize> resized_size(const PatchRules& rules, PixelSize size, std::string_view source) {
  constexpr double kMostAspect = 200;
  WEFT_CHECK(size.height > 0 && size.width > 0, "a picture of {} by {}", size.width, size.height);
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  if (std::max(height, width) / std::min(height, width) > kMostAspect) {
    return Error{.source = std::string(source),
                 .problem = fmt::format("is {} by {} pixels; one side may be at most {} times the other", size.width,
                                        size.height, kMostAspect),
                 .advice = "Cut it into parts."};
  }
  // In double precision and rounded half to even, as Python does it.
  const auto factor = static_cast<double>(rules.factor());
  const auto min_pixels = static_cast<double>(rules.min_pixels), max_pixels = static_cast<double>(rules.max_pixels);
  double new_height = std::nearbyint(height / factor) * factor;
  double new_width = std::nearbyint(width / factor) * factor;
  if (new_height * new_width > max_pixels) {
    const double beta = std::sqrt(height * width / max_pixels);
    new_height = std::max(factor, std::floor(height / beta / factor) * factor);
    new_width = std::max(factor, std::floor(width / beta / factor) * factor);
  } else if (new_height * new_width < min_pixels) {
    const double beta = std::sqrt(min_pixels / (height * width));
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
