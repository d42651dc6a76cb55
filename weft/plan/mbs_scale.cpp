#include "weft/plan/mbs_scale.h"

#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr IntegerRange kRange{1, 1'000'000};

/// All of the text, in range; else 0.
int64_t parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_count = error == std::errc() && end == text.data() + text.size();
  return is_count && value >= kRange.min && value <= kRange.max ? value : 0;
}

}  // namespace

std::string mbs_scale_text(const ModulePlan& module) {
  if (module.mbs_parts == 1) return std::to_string(module.mbs_scale);
  return fmt::format("{}/{}", module.mbs_scale, module.mbs_parts);
}

void set_mbs_scale(ModulePlan& module, int64_t scale, int64_t parts) {
  const int64_t common = std::gcd(scale, parts);
  module.mbs_scale = scale / common;
  module.mbs_parts = parts / common;
}

Json mbs_scale_to_json(const ModulePlan& module) {
  return module.mbs_parts == 1 ? Json(module.mbs_scale) : Json(mbs_scale_text(module));
}

void read_mbs_scale(Fields& fields, int64_t version, ModulePlan& module) {
  const Json* raw = fields.has("mbs_scale") ? fields.raw("mbs_scale") : nullptr;
  if (version < 2 || raw == nullptr || !raw->is_string()) {
    module.mbs_scale = fields.integer_or("mbs_scale", 1, kRange);
    return;
  }
  const std::string text = raw->get<std::string>();
  const size_t slash = text.find('/');
  const int64_t scale = slash == std::string::npos ? 0 : parse_count(std::string_view(text).substr(0, slash));
  const int64_t parts = slash == std::string::npos ? 0 : parse_count(std::string_view(text).substr(slash + 1));
  if (scale == 0 || parts == 0) {
    fields.complain("mbs_scale",
                    fmt::format("is {}, a whole number from {} to {} or two of them like \"1/4\" are needed",
                                in_quotes(text), kRange.min, kRange.max));
    return;
  }
  set_mbs_scale(module, scale, parts);
}

}  // namespace weft
