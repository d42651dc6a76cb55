#include "weft/models/layer_library.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

const OwnLayerKind* find_in(const std::vector<OwnLayerKind>& kinds, const std::string& name) {
  const auto found =
      std::find_if(kinds.begin(), kinds.end(), [&](const OwnLayerKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

}  // namespace

Result<std::vector<OwnLayerKind>> load_layers(const std::string& paths) {
  const LibraryKind kind{.variable = kLayerLibraries,
                         .entry_point = kLayerEntryPoint,
                         .macro = "WEFT_LAYER_LIBRARY",
                         .layout = layer_layout()};
  std::vector<OwnLayerKind> all;
  for (const std::string& path : listed_paths(paths)) {
    WEFT_TRY(const LibraryHead* const head, load_library(path, kind));
    std::vector<OwnLayerKind> own;
    reinterpret_cast<const LayerLibrary*>(head)->list(own);
    for (OwnLayerKind& each : own) {
      if (find_in(all, each.name) != nullptr) {
        return Error{.source = path,
                     .problem = fmt::format("has the layer {}, which is known already", in_quotes(each.name)),
                     .advice = "Call it otherwise, here and in the family that names it."};
      }
      all.push_back(std::move(each));
    }
  }
  return all;
}

Result<const std::vector<OwnLayerKind>*> layers_of_libraries() {
  static const Result<std::vector<OwnLayerKind>> loaded = [] {
    const char* paths = std::getenv(kLayerLibraries);
    return load_layers(paths == nullptr ? "" : paths);
  }();
  if (!loaded) return loaded.error();
  return &*loaded;
}

Result<const OwnLayerKind*> find_layer(const std::string& name) {
  WEFT_TRY(const std::vector<OwnLayerKind>* const kinds, layers_of_libraries());
  if (const OwnLayerKind* found = find_in(*kinds, name)) return found;
  std::vector<std::string> known;
  for (const OwnLayerKind& kind : *kinds) known.push_back(kind.name);
  return Error{
      .problem = fmt::format("has layers that are run as {}, {}", in_quotes(name),
                             known.empty() ? fmt::format("but {} names no library of layers", kLayerLibraries)
                                           : fmt::format("but known are {}", joined_or(known))),
      .advice = fmt::format("Name the library that has it in {} (docs/manual/add-a-family.md).", kLayerLibraries)};
}

}  // namespace weft
