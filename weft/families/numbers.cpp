#include "weft/families/numbers.h"

#include <algorithm>

namespace weft {

std::string WeightFiles::name_of(std::string_view name_in_file) const {
  for (const auto& [from, to] : renamed) {
    if (name_in_file.starts_with(from)) return to + std::string(name_in_file.substr(from.size()));
  }
  return std::string(name_in_file);
}

bool WeightFiles::is_unused(std::string_view name) const {
  return (!tied_head.empty() && name == tied_head) ||
         std::any_of(unused_endings.begin(), unused_endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); }) ||
         std::any_of(unused_beginnings.begin(), unused_beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

}  // namespace weft
