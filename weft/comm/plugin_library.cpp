#include "weft/comm/plugin_library.h"

#include <dlfcn.h>
#include <vector>

#include <fmt/format.h>

namespace weft {
namespace {

std::filesystem::path find(const std::filesystem::path& file) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  std::vector<std::filesystem::path> places{program.parent_path() / "lib", program};
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&find), &own) != 0 && own.dli_fname != nullptr)
    places.push_back(std::filesystem::absolute(own.dli_fname, failed).parent_path());
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / file, failed)) return place / file;
  }
  return program / file;
}

}  // namespace

Result<void*> load_plugin(const PluginLibrary& library, const std::filesystem::path& given) {
  const std::filesystem::path path = given.empty() ? find(library.file) : given;
  const auto failure = [&](const std::string& problem) {
    return Error{.kind = ErrorKind::kJob, .source = path.string(), .problem = problem, .advice = library.advice};
  };
  // OpenMPI loads parts of its own that look for its symbols, so they are global.
  void* loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (loaded == nullptr) return failure(fmt::format("{} cannot be loaded: {}", library.what, dlerror()));
  void* entry_point = dlsym(loaded, library.entry_point.c_str());
  if (entry_point == nullptr) return failure(fmt::format("is not Weft's library of {}", library.what));
  return entry_point;
}

}  // namespace weft
