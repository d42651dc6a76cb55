#pragma once

#include <string>

#include "weft/base/result.h"

namespace weft {

/// NVIDIA's compiler as a library, libnvrtc: it needs neither a GPU nor a driver.
class Nvrtc {
 public:
  /// Loaded when this is first called, the same for all callers: from WEFT_NVRTC, from `beside` (a folder where
  /// LibTorch's own libraries are), or from where the system finds it. An Error where it is not there.
  static Result<const Nvrtc*> get(const std::string& beside = {});

  /// "13.0"
  const std::string& version() const { return version_; }

  /// Machine code for one architecture, like 90 for sm_90. The Error is what the compiler says.
  Result<std::string> compile(const std::string& name, const std::string& source, int architecture) const;

 private:
  struct Functions {
    int (*version)(int* major, int* minor);
    const char* (*error_string)(int status);
    int (*create)(void** program, const char* source, const char* name, int num_headers, const char* const* headers,
                  const char* const* names);
    int (*compile)(void* program, int num_options, const char* const* options);
    int (*log_size)(void* program, size_t* size);
    int (*log)(void* program, char* text);
    int (*code_size)(void* program, size_t* size);
    int (*code)(void* program, char* bytes);
    int (*destroy)(void** program);
  };

  static Result<Nvrtc> load(const std::string& beside);

  Functions functions_{};
  std::string version_;
};

}  // namespace weft
