#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/version.h"
#include "weft/families/family.h"

namespace weft {

/// The environment variable that names libraries of families, with ":" between their paths.
inline constexpr const char* kFamilyLibraries = "WEFT_FAMILIES";
inline constexpr const char* kFamilyEntryPoint = "weft_family_library";

/// A number that differs where a library and a program lay out differently what they hand each other.
constexpr uint64_t family_layout() {
  uint64_t layout = 14695981039346656037ULL;
  for (const uint64_t part :
       {uint64_t{sizeof(Op)}, uint64_t{sizeof(OpShape)}, uint64_t{sizeof(OpWeights)}, uint64_t{sizeof(Block)},
        uint64_t{sizeof(Module)}, uint64_t{sizeof(LlmNumbers)}, uint64_t{sizeof(VisionNumbers)},
        uint64_t{sizeof(AudioNumbers)}, uint64_t{sizeof(MediaText)}, uint64_t{sizeof(ModelNumbers)}, uint64_t{sizeof(DeclaredModel)},
        uint64_t{sizeof(Family)}, uint64_t{sizeof(Fields)}, uint64_t{__cplusplus}, uint64_t{_GLIBCXX_USE_CXX11_ABI}}) {
    layout = (layout ^ part) * 1099511628211ULL;
  }
  return layout;
}

/// What a library of families says of itself. Its first two members stay what they are in every version.
struct FamilyLibrary {
  const char* version;
  uint64_t layout;
  void (*list)(std::vector<Family>& families);
};

/// The families of all libraries that the environment names, which are loaded at the first call and stay. A library
/// that cannot be loaded, is of another version of Weft, or has a family that is known already, is an error that names
/// it.
Result<const std::vector<Family>*> families_of_libraries();

/// The same for a list of paths, each time anew.
Result<std::vector<Family>> load_families(const std::string& paths);

}  // namespace weft

/// Once in a library: `listed` is a function that returns its families, as a std::vector<weft::Family>.
#define WEFT_FAMILY_LIBRARY(listed)                                                                                \
  extern "C" __attribute__((visibility("default"))) const weft::FamilyLibrary* weft_family_library() {             \
    static const weft::FamilyLibrary library = {weft::kVersion, weft::family_layout(),                             \
                                                [](std::vector<weft::Family>& families) { families = listed(); }}; \
    return &library;                                                                                               \
  }
