#include "weft/cli/runtime_loader.h"

#include <cstring>
#include <dlfcn.h>

#include <fmt/format.h>

#include "weft/cli/installation.h"

namespace weft {

Result<const RuntimeApi*> load_runtime() {
  const std::filesystem::path path = find_runtime_library();
  const auto failure = [&](const std::string& problem) {
    return Error{
        .kind = ErrorKind::kJob, .source = path.string(), .problem = problem, .advice = "Run scripts/build again."};
  };
  // Kept loaded until the process ends: LibTorch does not unload cleanly.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return failure(fmt::format("the runtime half cannot be loaded: {}", dlerror()));
  const auto get_api = reinterpret_cast<const RuntimeApi* (*)()>(dlsym(library, kRuntimeEntryPoint));
  if (get_api == nullptr) return failure("is not Weft's runtime half");
  const RuntimeApi* api = get_api();
  if (std::strcmp(api->version, WEFT_VERSION) != 0) {
    return failure(fmt::format("is of version {}, but this program is {}", api->version, WEFT_VERSION));
  }
  return api;
}

}  // namespace weft
