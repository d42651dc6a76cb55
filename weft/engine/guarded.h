#pragma once

#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "weft/base/result.h"

namespace weft {

/// What helps where memory ran out on prompts.
inline constexpr const char* kPromptMemoryAdvice =
    "Use --dtype bf16, shorter prompts, fewer new tokens, or a machine with more memory.";

/// What the user is told of an exception from LibTorch, whose own text is a stack trace: memory that ran out, with this
/// advice, or a bug.
Error explain_libtorch_error(const c10::Error& error, const std::string& memory_advice = kPromptMemoryAdvice);
Error memory_ran_out(const std::string& details = "", const std::string& advice = kPromptMemoryAdvice);

/// Runs something of the runtime half so that no exception of LibTorch leaves it.
template <typename Function>
auto guarded(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const c10::Error& error) {
    return explain_libtorch_error(error);
  } catch (const std::bad_alloc&) {
    return memory_ran_out();
  }
}

}  // namespace weft
