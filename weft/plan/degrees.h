#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft {

/// How the ranks of a module divide its work and its states.
struct Degrees {
  int64_t tp = 1, cp = 1, cp_ulysses = 1, ep = 1, pp = 1, vpp = 1, dp = 1;
  bool sequence_parallel = false;
  bool experts_over_tp = false;  ///< experts are whole and spread over tp ranks too: ep divides tp·cp·dp
  int64_t zero = 0;
  bool zero_keep_gathered = false;

  int64_t num_ranks() const { return tp * cp * pp * dp; }
  /// Along an axis of the mesh: tp, cp, dp or pp.
  int64_t degree(std::string_view axis) const { return axis == "tp" ? tp : axis == "cp" ? cp : axis == "dp" ? dp : pp; }
  bool operator==(const Degrees&) const = default;
};

/// A degree and what plans, search files and tables call it.
struct DegreeName {
  const char* name;
  int64_t Degrees::*value;
  bool is_of_llm_alone = false;  ///< encoders have 1
};

/// In the order of documents.
inline constexpr std::array<DegreeName, 7> kDegreeNames = {{{"tp", &Degrees::tp},
                                                            {"cp", &Degrees::cp},
                                                            {"cp_ulysses", &Degrees::cp_ulysses},
                                                            {"ep", &Degrees::ep, /*is_of_llm_alone=*/true},
                                                            {"pp", &Degrees::pp},
                                                            {"vpp", &Degrees::vpp, /*is_of_llm_alone=*/true},
                                                            {"dp", &Degrees::dp}}};

/// Another value for each degree.
template <typename Value>
struct PerDegree {
  Value tp, cp, cp_ulysses, ep, pp, vpp, dp;

  /// In the order of kDegreeNames.
  std::array<Value*, kDegreeNames.size()> all() { return {&tp, &cp, &cp_ulysses, &ep, &pp, &vpp, &dp}; }
};

}  // namespace weft
