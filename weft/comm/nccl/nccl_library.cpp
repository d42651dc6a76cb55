#include "weft/comm/nccl/nccl_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <link.h>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "weft/comm/nccl/libtorch_hint.h"

namespace weft {
namespace {

constexpr char kLibrary[] = "libnccl.so.2";

/// Where LibTorch's packages keep it, seen from the folder of LibTorch's libraries.
void add_places_beside_libtorch(const std::filesystem::path& libraries, std::vector<std::string>& places) {
  if (libraries.empty()) return;
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::canonical(libraries, failed);
  for (const std::filesystem::path& folder : {libraries, real}) {
    if (folder.empty()) continue;
    places.push_back((folder / kLibrary).string());
    places.push_back((folder.parent_path().parent_path() / "nvidia" / "nccl" / "lib" / kLibrary).string());
  }
}

/// The folder of the LibTorch that this process has loaded, if it has.
std::filesystem::path folder_of_loaded_libtorch() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (torch == nullptr) return {};
  const link_map* map = nullptr;
  std::filesystem::path folder;
  if (dlinfo(torch, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0 && map != nullptr) {
    std::error_code failed;
    folder = std::filesystem::canonical(map->l_name, failed).parent_path();
  }
  dlclose(torch);
  return folder;
}

Result<void*> open_library() {
  if (void* loaded = dlopen(kLibrary, RTLD_NOLOAD | RTLD_NOW)) return loaded;
  if (const char* given = std::getenv("WEFT_NCCL"); given != nullptr && *given != '\0') {
    if (void* loaded = dlopen(given, RTLD_NOW | RTLD_LOCAL)) return loaded;
    return Error{.kind = ErrorKind::kJob,
                 .source = "WEFT_NCCL",
                 .problem = fmt::format("NCCL cannot be loaded from there: {}", dlerror()),
                 .advice = "Set it to the path of a libnccl.so.2."};
  }
  std::vector<std::string> places;
  add_places_beside_libtorch(folder_of_loaded_libtorch(), places);
  if (const std::filesystem::path hint = kLibtorchHint; !hint.empty()) add_places_beside_libtorch(hint / "lib", places);
  places.emplace_back(kLibrary);
  std::string tried;
  for (const std::string& place : places) {
    if (void* loaded = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", dlerror());
  }
  return Error{.kind = ErrorKind::kJob,
               .source = kLibrary,
               .problem = fmt::format("NCCL, which moves memory between GPUs, cannot be loaded: {}", tried),
               .advice = "Install NCCL, or set WEFT_NCCL to the path of its libnccl.so.2."};
}

Result<NcclLibrary> load() {
  WEFT_TRY(void* library, open_library());
  NcclLibrary nccl{};
  const char* missing = nullptr;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
#define WEFT_GET(name) get(nccl.name, #name)
  WEFT_GET(ncclGetVersion);
  WEFT_GET(ncclGetErrorString);
  WEFT_GET(ncclGetLastError);
  WEFT_GET(ncclGetUniqueId);
  WEFT_GET(ncclCommInitRank);
  WEFT_GET(ncclCommDestroy);
  WEFT_GET(ncclCommAbort);
  WEFT_GET(ncclCommGetAsyncError);
  WEFT_GET(ncclGroupStart);
  WEFT_GET(ncclGroupEnd);
  WEFT_GET(ncclAllReduce);
  WEFT_GET(ncclReduce);
  WEFT_GET(ncclAllGather);
  WEFT_GET(ncclReduceScatter);
  WEFT_GET(ncclBroadcast);
  WEFT_GET(ncclSend);
  WEFT_GET(ncclRecv);
#undef WEFT_GET
  if (missing == nullptr) return nccl;
  return Error{.kind = ErrorKind::kJob,
               .source = kLibrary,
               .problem = fmt::format("has no function {}", missing),
               .advice = "Install NCCL 2.14 or later, or set WEFT_NCCL to the path of its libnccl.so.2."};
}

}  // namespace

void NcclLibrary::check(NcclStatus status, const char* what) const {
  if (status == 0 || status == kNcclInProgress) return;
  throw std::runtime_error(fmt::format("{}: {}", what, text_of(status)));
}

std::string NcclLibrary::text_of(NcclStatus status) const {
  const char* last = ncclGetLastError(nullptr);
  const std::string more = last == nullptr || *last == '\0' ? "" : fmt::format(", {}", last);
  return fmt::format("{} (NCCL error {}{})", ncclGetErrorString(status), status, more);
}

Result<const NcclLibrary*> nccl_library() {
  static const Result<NcclLibrary> library = load();
  if (!library) return library.error();
  return &*library;
}

int nccl_type(DataType type) {
  switch (type) {
    case DataType::kFp64:
      return 8;
    case DataType::kFp32:
      return 7;
    case DataType::kBf16:
      return 9;
    case DataType::kFp16:
      return 6;
    case DataType::kInt64:
      return 4;
    case DataType::kInt32:
      return 2;
    case DataType::kUint8:
    case DataType::kBool:
      break;
  }
  return 1;
}

int nccl_reduction(Reduction reduction, DataType type) {
  constexpr int kSum = 0, kMax = 2, kAvg = 4;
  if (reduction == Reduction::kMax || type == DataType::kBool) return kMax;
  return reduction == Reduction::kAvg ? kAvg : kSum;
}

}  // namespace weft
