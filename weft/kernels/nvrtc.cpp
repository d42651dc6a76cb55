#include "weft/kernels/nvrtc.h"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr const char* kNames[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};

/// Where the library may be, the likeliest first.
std::vector<std::string> candidates(const std::string& beside) {
  std::vector<std::string> paths;
  if (const char* given = std::getenv("WEFT_NVRTC"); given != nullptr && *given != '\0') return {given};
  if (!beside.empty()) {
    const std::filesystem::path folder = beside;
    // Python's packages put CUDA's libraries beside torch's folder.
    for (const std::filesystem::path& at :
         {folder, folder / "../../nvidia/cu13/lib", folder / "../../nvidia/cuda_nvrtc/lib"})
      for (const char* name : kNames) paths.push_back((at / name).string());
  }
  for (const char* name : kNames) paths.emplace_back(name);
  for (const char* name : kNames) paths.push_back(std::string("/usr/local/cuda/lib64/") + name);
  return paths;
}

}  // namespace

Result<Nvrtc> Nvrtc::load(const std::string& beside) {
  const auto failure = [](std::string source, std::string problem) {
    return Error{.kind = ErrorKind::kJob,
                 .source = std::move(source),
                 .problem = std::move(problem),
                 .advice = "Install NVIDIA's NVRTC (it comes with PyTorch's CUDA packages), or set WEFT_NVRTC to it."};
  };
  void* library = nullptr;
  std::string path, why;
  for (const std::string& candidate : candidates(beside)) {
    library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    path = candidate;
    if (library != nullptr) break;
    if (why.empty() || candidate.find('/') == std::string::npos) why = dlerror();
  }
  if (library == nullptr) return failure("libnvrtc.so", fmt::format("NVIDIA's compiler cannot be loaded: {}", why));
  Nvrtc nvrtc;
  const char* missing = nullptr;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  Functions& f = nvrtc.functions_;
  get(f.version, "nvrtcVersion");
  get(f.error_string, "nvrtcGetErrorString");
  get(f.create, "nvrtcCreateProgram");
  get(f.compile, "nvrtcCompileProgram");
  get(f.log_size, "nvrtcGetProgramLogSize");
  get(f.log, "nvrtcGetProgramLog");
  get(f.code_size, "nvrtcGetCUBINSize");
  get(f.code, "nvrtcGetCUBIN");
  get(f.destroy, "nvrtcDestroyProgram");
  if (missing != nullptr) return failure(path, fmt::format("NVIDIA's compiler has no function {}", missing));
  int major = 0, minor = 0;
  if (f.version(&major, &minor) != 0) return failure(path, "NVIDIA's compiler does not say its version");
  nvrtc.version_ = fmt::format("{}.{}", major, minor);
  return nvrtc;
}

Result<const Nvrtc*> Nvrtc::get(const std::string& beside) {
  static const Result<Nvrtc> loaded = load(beside);
  if (!loaded) return loaded.error();
  return &*loaded;
}

Result<std::string> Nvrtc::compile(const std::string& name, const std::string& source, int architecture) const {
  const Functions& f = functions_;
  const auto failure = [&](std::string problem) {
    return Error{
        .kind = ErrorKind::kJob,
        .source = name,
        .problem = std::move(problem),
        .advice = fmt::format("sm_{} may be unknown to NVRTC {}: install a newer one.", architecture, version_)};
  };
  void* program = nullptr;
  if (const int status = f.create(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr); status != 0)
    return failure(f.error_string(status));
  const std::string target = fmt::format("--gpu-architecture=sm_{}", architecture);
  const std::array<const char*, 2> options = {target.c_str(), "--std=c++17"};
  const int status = f.compile(program, static_cast<int>(options.size()), options.data());
  const auto text_of = [&](auto size_of, auto read) {
    size_t size = 0;
    std::string text;
    if (size_of(program, &size) != 0) return text;
    text.resize(size);
    if (read(program, text.data()) != 0) text.clear();
    return text;
  };
  if (status != 0) {
    const std::string log = text_of(f.log_size, f.log);
    f.destroy(&program);
    return failure(fmt::format("{}: {}", f.error_string(status), log.substr(0, 2000)));
  }
  std::string code = text_of(f.code_size, f.code);
  f.destroy(&program);
  if (code.empty()) return failure("the compiler gave no machine code");
  return code;
}

}  // namespace weft
