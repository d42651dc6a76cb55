#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/spec/model.h"

namespace weft {

/// What weight files call all weights of a model.
std::vector<std::string> all_weight_names(const Model& model);

/// What is wrong with a pattern that fits none of these names, with the one that was probably meant; nothing where it
/// fits some.
std::optional<std::string> find_unfit(const std::string& pattern, const std::vector<std::string>& names);

}  // namespace weft
