#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "weft/base/check.h"
#include "weft/program/name_weights.h"
#include "weft/spec/adapters.h"

namespace weft {

/// Last words of the names of a module's weights, as targets are given.
inline std::vector<std::string> drawn_targets(const Module& module) {
  std::set<std::string> ends;
  for (int64_t place = 0; place < num_blocks(module); ++place) {
    for (const auto& together : weight_names(module, place)) {
      for (const std::string& name : together) {
        if (!name.ends_with(".weight")) continue;
        const std::string layer = name.substr(0, name.size() - std::string(".weight").size());
        ends.insert("*." + layer.substr(layer.rfind('.') + 1));
      }
    }
  }
  return {ends.begin(), ends.end()};
}

/// The model with adapters of any kind, by the seed: of all linear layers or some, of one module or all, of several
/// ranks, with dropout where that is possible.
inline Model with_drawn_adapters(const Model& model, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto draw_rule = [&] {
    AdapterRule rule{.rank = static_cast<int64_t>(1 + below(9)), .alpha = static_cast<double>(1 + below(12))};
    if (below(3) == 0) {
      rule.targets = {"*"};
      return rule;
    }
    const std::vector<std::string> ends = drawn_targets(model.modules[below(model.modules.size())]);
    for (size_t left = 1 + below(5); left > 0; --left) rule.targets.push_back(ends[below(ends.size())]);
    if (below(3) == 0) rule.dropout = 0.3;
    return rule;
  };
  constexpr int kMostTries = 1000;
  for (int i = 0; i < kMostTries; ++i) {
    std::vector<AdapterRule> rules = {draw_rule()};
    if (below(3) == 0) rules.push_back(draw_rule());
    if (auto adapted = with_adapters(model, rules, "drawn")) return *std::move(adapted);
  }
  WEFT_CHECK(false, "no adapters for {} in {} tries", model.name, kMostTries);
}

/// The model itself, or with adapters for two seeds of three.
inline Model maybe_with_adapters(const Model& model, uint64_t seed) {
  return seed % 3 == 0 ? model : with_drawn_adapters(model, seed);
}

}  // namespace weft
