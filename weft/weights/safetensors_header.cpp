#include "weft/weights/safetensors_header.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/check.h"
#include "weft/base/json.h"
#include "weft/base/text.h"

namespace weft {
namespace {

/// In quotes and escaped; nothing for what is not UTF-8.
std::optional<std::string> json_text(const std::string& text) {
  try {
    return Json(text).dump();
  } catch (const Json::type_error&) {
    return std::nullopt;
  }
}

}  // namespace

void sort_for_safetensors(std::vector<WeightInfo>& weights) {
  std::sort(weights.begin(), weights.end(), [](const WeightInfo& a, const WeightInfo& b) {
    return a.type != b.type ? a.type > b.type : a.name < b.name;
  });
}

Result<std::string> safetensors_front(const std::vector<WeightInfo>& weights, const WeightMetadata& metadata,
                                      const std::string& source) {
  const auto refuse = [&](std::string_view field, std::string problem, std::string advice) {
    return Error{.source = source,
                 .field = printable(field),
                 .problem = "cannot be written: " + std::move(problem),
                 .advice = std::move(advice)};
  };
  const auto not_utf8 = [&](std::string_view text) {
    return refuse(text, "is not valid UTF-8, which the format needs", "Give it another name.");
  };
  std::string text = "{";
  if (metadata) {
    text += R"("__metadata__":{)";
    const char* separator = "";
    for (const auto& [key, value] : *metadata) {
      const auto key_text = json_text(key), value_text = json_text(value);
      if (!key_text || !value_text) return not_utf8("__metadata__." + key);
      text += separator + *key_text + ":" + *value_text;
      separator = ",";
    }
    text += "}";
  }
  std::unordered_set<std::string_view> names;
  int64_t begin = 0;
  for (const WeightInfo& weight : weights) {
    if (weight.name == "__metadata__")
      return refuse(weight.name, "the format keeps this name", "Give it another name.");
    WEFT_CHECK(names.insert(weight.name).second, "the weight {} twice in one file", weight.name);
    const auto name = json_text(weight.name);
    if (!name) return not_utf8(weight.name);
    const auto size = bytes_of(weight.type, weight.shape);
    WEFT_CHECK(size.has_value(), "the weight {} has no size", weight.name);
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                        *name, name_of(weight.type), fmt::join(weight.shape, ","), begin, begin + *size);
    begin += *size;
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (std::ssize(text) > kMaxHeaderBytes) {
    return refuse("",
                  fmt::format("{} weights need a header of {} bytes, and at most {} are allowed", weights.size(),
                              text.size(), with_commas(kMaxHeaderBytes)),
                  "Spread them over more files.");
  }
  std::string front;
  for (int shift = 0; shift < 64; shift += 8) front += static_cast<char>(text.size() >> shift & 0xff);
  return front + text;
}

}  // namespace weft
