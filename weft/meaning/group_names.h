#pragma once

#include <string>

#include "weft/spec/model.h"

// What training calls the groups of ranks that it makes (rank_groups.h says who is in them), so that what they are
// predicted to do can be found again in what they did.
namespace weft::group_names {

inline constexpr const char* kWorld = "world";
inline constexpr const char* kTensor = "tp";
inline constexpr const char* kContext = "cp";
inline constexpr const char* kUlysses = "ulysses";
inline constexpr const char* kRing = "ring";
inline constexpr const char* kData = "data";
inline constexpr const char* kPipeline = "pp";
inline constexpr const char* kExperts = "ep";
inline constexpr const char* kBalance = "balance";
inline constexpr const char* kSameExperts = "same experts";
inline constexpr const char* kSameKeys = "same keys";
inline constexpr const char* kTiedEnds = "tied ends";

/// Of the bridge that brings an encoder's rows to the llm, and of the one back.
inline std::string rows_of(ModuleKind encoder) {
  return std::string(name_of(encoder)) + " rows";
}
inline std::string gradients_of(ModuleKind encoder) {
  return std::string(name_of(encoder)) + " gradients";
}

}  // namespace weft::group_names
