#include "weft/data/conversations/media_fit.h"

#include <fmt/format.h>

namespace weft {
namespace {

struct Comparison {
  const char* key;
  int64_t found;
  int64_t wanted;
};

std::optional<Error> find_difference(const Document& document, std::string_view part,
                                     std::initializer_list<Comparison> numbers) {
  for (const auto& [key, found, wanted] : numbers) {
    if (found == wanted) continue;
    return Error{.source = document.source,
                 .field = document.root.contains(part) ? fmt::format("{}.{}", part, key) : key,
                 .problem = fmt::format("gives {}, the model needs {}", found, wanted),
                 .advice = "Take the files of the model that is used."};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> find_misfit(const Document& document, std::string_view part, const PatchRules& rules,
                                 const VisionNumbers& vision) {
  // One by one: patches of other sides and other numbers of frames can have equally many values.
  return find_difference(document, part,
                         {{"patch_size", rules.patch, vision.patch_size},
                          {"merge_size", rules.merge, vision.merge_size},
                          {"temporal_patch_size", rules.temporal_patch, vision.temporal_patch_size}});
}

std::optional<Error> find_misfit(const Document& document, const MelRules& rules, const AudioNumbers& audio) {
  return find_difference(document, "feature_extractor", {{"feature_size", rules.num_mels, audio.mel_bins}});
}

std::optional<Error> find_odd_channels(const VisionNumbers& vision, std::string source) {
  constexpr int64_t kColours = 3;
  if (vision.channels == kColours) return std::nullopt;
  return Error{.source = std::move(source),
               .problem = fmt::format("has patches of {} channels, and pictures of files have {}: red, green and blue",
                                      vision.channels, kColours),
               .advice = "Use a model that takes such pictures."};
}

}  // namespace weft
