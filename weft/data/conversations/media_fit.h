#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/base/document.h"
#include "weft/families/numbers.h"
#include "weft/probe/mel_rules.h"
#include "weft/probe/patch_rules.h"

namespace weft {

// A processor's file without a fault of its own can be another model's. The error names the field that says so.

/// Of the rules of pictures that `part` of the file gives ("image_processor" of a processor_config.json, or all of it).
std::optional<Error> find_misfit(const Document& document, std::string_view part, const PatchRules& rules,
                                 const VisionNumbers& vision);
/// Of the rules of sound.
std::optional<Error> find_misfit(const Document& document, const MelRules& rules, const AudioNumbers& audio);

/// Files have red, green and blue, and there is no way to make other channels of them. `source` is the model's.
std::optional<Error> find_odd_channels(const VisionNumbers& vision, std::string source);

}  // namespace weft
