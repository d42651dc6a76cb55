#include "weft/meaning/weight_patterns.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/meaning/trainable.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

/// Numbers of layers and experts left out, so that a mistyped pattern is compared with a few names.
std::string without_numbers(const std::string& name) {
  std::string text;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string word = name.substr(begin, end - begin);
    const bool is_number =
        !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    text += (begin > 0 ? "." : "") + (is_number ? std::string("*") : word);
    begin = end + 1;
  }
  return text;
}

/// The pattern that was probably meant: a name, or a beginning of names, like "visual.merger.*".
std::string nearest(const std::string& pattern, const std::vector<std::string>& names) {
  std::set<std::string> known;
  for (const std::string& name : names) {
    const std::string general = without_numbers(name);
    known.insert(general);
    for (size_t dot = general.find('.'); dot != std::string::npos; dot = general.find('.', dot + 1))
      known.insert(general.substr(0, dot) + ".*");
  }
  const std::vector<std::string> list(known.begin(), known.end());
  const std::string guess = did_you_mean(pattern, list);
  if (!guess.empty()) return guess;
  return fmt::format(" Names are like {}", in_quotes(names.front()));
}

}  // namespace

std::vector<std::string> all_weight_names(const Model& model) {
  std::vector<std::string> names;
  for (const Module& module : model.modules) {
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      for (const auto& together : weight_names(module, place))
        names.insert(names.end(), together.begin(), together.end());
    }
  }
  return names;
}

std::optional<std::string> find_unfit(const std::string& pattern, const std::vector<std::string>& names) {
  if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return fits_pattern(name, pattern); }))
    return std::nullopt;
  return fmt::format("is {}, which fits the name of no weight.{}", in_quotes(pattern), nearest(pattern, names));
}

}  // namespace weft
