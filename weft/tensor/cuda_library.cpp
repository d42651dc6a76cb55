#include "weft/tensor/cuda_library.h"

#include <dlfcn.h>
#include <filesystem>

#include <ATen/Context.h>
#include <fmt/format.h>

#include "weft/comm/cuda/cuda_driver.h"

namespace weft {
namespace {

Result<bool> load() {
  if (!cuda_driver()) return false;
  // Beside the half that every program has.
  Dl_info libtorch{};
  if (dladdr(reinterpret_cast<const void*>(&at::globalContext), &libtorch) == 0 || libtorch.dli_fname == nullptr)
    return false;
  const std::filesystem::path path = std::filesystem::path(libtorch.dli_fname).parent_path() / "libtorch_cuda.so";
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return false;
  const auto failure = [&](const std::string& problem, const std::string& advice) {
    return Error{.kind = ErrorKind::kJob, .source = path.string(), .problem = problem, .advice = advice};
  };
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return failure(fmt::format("LibTorch's CUDA half cannot be loaded: {}", dlerror()),
                   "Install the CUDA libraries that it names, as LibTorch's packages do, or hide the GPU with "
                   "CUDA_VISIBLE_DEVICES= to run without it.");
  }
  if (!at::globalContext().hasCUDA()) {
    return failure(
        "LibTorch's CUDA half is loaded, but LibTorch sees no GPU",
        "Look whether the driver is new enough for it (nvidia-smi shows the CUDA version that it supports), and "
        "that nothing asks LibTorch about CUDA before it is loaded.");
  }
  return true;
}

}  // namespace

Result<bool> load_cuda_library() {
  static const Result<bool> result = load();
  return result;
}

}  // namespace weft
