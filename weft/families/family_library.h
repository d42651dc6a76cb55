#pragma once

#include <vector>

#include "weft/base/version.h"
#include "weft/families/family.h"
#include "weft/families/loaded_library.h"

namespace weft {

/// The environment variable that names libraries of families, with ":" between their paths.
inline constexpr const char* kFamilyLibraries = "WEFT_FAMILIES";
inline constexpr const char* kFamilyEntryPoint = "weft_family_library";

/// Of what a library of families and the program hand each other.
constexpr uint64_t family_layout() {
  return layout_of({sizeof(Op), sizeof(OpShape), sizeof(OpWeights), sizeof(Block), sizeof(Module), sizeof(LlmNumbers),
                    sizeof(VisionNumbers), sizeof(AudioNumbers), sizeof(MediaText), sizeof(ModelNumbers),
                    sizeof(DeclaredModel), sizeof(Family), sizeof(Fields), __cplusplus, _GLIBCXX_USE_CXX11_ABI});
}

/// What a library of families says of itself.
struct FamilyLibrary {
  LibraryHead head;
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
  extern "C" __attribute__((visibility("default"))) const weft::LibraryHead* weft_family_library() {               \
    static const weft::FamilyLibrary library = {{weft::kVersion, weft::family_layout()},                           \
                                                [](std::vector<weft::Family>& families) { families = listed(); }}; \
    return &library.head;                                                                                          \
  }
