#include "weft/families/numbers.h"

#include <algorithm>

namespace weft {

std::string WeightFiles::name_of(std::string_view name_in_file) const {
  for (const auto& [from, to] : renamed) {
    if (name_in_file.starts_with(from)) return to + std::string(name_in_file.substr(from.size()));
  }
  return std::string(name_in_file);
}

std::optional<std::string> WeightFiles::stack_of(std::string_view name) const {
  for (const StackedWeights& stack : stacked) {
    if (name.ends_with(stack.in_files))
      return std::string(name.substr(0, name.size() - stack.in_files.size())) + stack.in_model;
  }
  return std::nullopt;
}

std::optional<std::string> WeightFiles::stack_with(std::string_view name) const {
  for (const StackedWeights& stack : stacked) {
    const size_t place = stack.in_model.find("{}");
    const std::string_view begin = std::string_view(stack.in_model).substr(0, place);
    const std::string_view end = std::string_view(stack.in_model).substr(place + 2);
    if (!name.ends_with(end)) continue;
    std::string_view rest = name.substr(0, name.size() - end.size());
    while (!rest.empty() && rest.back() >= '0' && rest.back() <= '9') rest.remove_suffix(1);
    if (rest.ends_with(begin)) return std::string(rest.substr(0, rest.size() - begin.size())) + stack.in_files;
  }
  return std::nullopt;
}

bool WeightFiles::is_unused(std::string_view name) const {
  return (!tied_head.empty() && name == tied_head) ||
         std::any_of(unused_endings.begin(), unused_endings.end(),
                     [&](const std::string& ending) { return name.ends_with(ending); }) ||
         std::any_of(unused_beginnings.begin(), unused_beginnings.end(),
                     [&](const std::string& beginning) { return name.starts_with(beginning); });
}

}  // namespace weft
