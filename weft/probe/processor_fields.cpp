#include "weft/probe/processor_fields.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

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

}  // namespace

void check_processor(Fields& fields, ProcessorNames processors) {
  for (const std::string_view key : {"image_processor_type", "video_processor_type"}) {
    const std::string type = fields.text_or(key, "");
    const bool is_known = std::any_of(processors.begin(), processors.end(),
                                      [&](const std::string& known) { return type.starts_with(known); });
    if (type.empty() || is_known) continue;
    fields.complain(
        key,
        fmt::format("is {}, but pictures of this model are prepared by processors whose names begin with {}", type,
                    joined_or({processors.begin(), processors.end()})),
        "Take the files of the model that is used.");
  }
}

void read_pixel_values(Fields& fields, PatchRules& rules) {
  constexpr int64_t kBicubic = 3;
  read_three(fields, "image_mean", rules.mean, -1000);
  read_three(fields, "image_std", rules.deviation, 1e-6);
  rules.rescale = fields.number_or("rescale_factor", rules.rescale, {1e-9, 1e9});
  if (const int64_t resample = fields.integer_or("resample", kBicubic, {0, 5}); resample != kBicubic)
    fields.complain("resample", fmt::format("is {}; 3, bicubic, is the way of resizing there is", resample));
  for (const std::string_view key : {"do_resize", "do_rescale", "do_normalize"}) require_step(fields, key);
}

}  // namespace weft
