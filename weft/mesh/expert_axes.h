#pragma once

#include <array>
#include <span>
#include <string>

namespace weft {

/// The axes of a mesh whose joined ranks share experts out: cp and dp, with `over_tp` tp too.
inline std::span<const std::string> expert_axes(bool over_tp) {
  static const std::array<std::string, 3> kAxes = {"tp", "cp", "dp"};
  return std::span(kAxes).subspan(over_tp ? 0 : 1);
}

/// Of these, the axes whose ranks route rows of one microbatch, and count their choices together.
inline std::span<const std::string> routing_axes(bool over_tp) {
  const std::span<const std::string> all = expert_axes(over_tp);
  return all.first(all.size() - 1);
}

}  // namespace weft
