#pragma once

#include <vector>

#include <torch/version.h>

#include "weft/base/version.h"
#include "weft/families/loaded_library.h"
#include "weft/models/own_layer.h"

namespace weft {

/// The environment variable that names libraries of layers, with ":" between their paths.
inline constexpr const char* kLayerLibraries = "WEFT_LAYERS";
inline constexpr const char* kLayerEntryPoint = "weft_layer_library";

/// Of what a library of layers and the runtime half hand each other.
constexpr uint64_t layer_layout() {
  return layout_of({sizeof(Block), sizeof(Op), sizeof(OpShape), sizeof(OpWeights), sizeof(TransformerLayer),
                    sizeof(AttentionCall), sizeof(RunContext), sizeof(ActivationSites), sizeof(Parameter),
                    sizeof(OpParameterMaker), sizeof(OwnLayerKind), TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
                    TORCH_VERSION_PATCH, __cplusplus, _GLIBCXX_USE_CXX11_ABI});
}

/// What a library of layers says of itself.
struct LayerLibrary {
  LibraryHead head;
  void (*list)(std::vector<OwnLayerKind>& kinds);
};

/// The layers of all libraries that the environment names, which are loaded at the first call and stay.
Result<const std::vector<OwnLayerKind>*> layers_of_libraries();
/// The same for a list of paths, each time anew.
Result<std::vector<OwnLayerKind>> load_layers(const std::string& paths);

/// One of those of libraries; an error says which there are.
Result<const OwnLayerKind*> find_layer(const std::string& name);

}  // namespace weft

/// Once in a library: `listed` is a function that returns its layers, as a std::vector<weft::OwnLayerKind>.
#define WEFT_LAYER_LIBRARY(listed)                                                                                \
  extern "C" __attribute__((visibility("default"))) const weft::LibraryHead* weft_layer_library() {               \
    static const weft::LayerLibrary library = {{weft::kVersion, weft::layer_layout()},                            \
                                               [](std::vector<weft::OwnLayerKind>& kinds) { kinds = listed(); }}; \
    return &library.head;                                                                                         \
  }
