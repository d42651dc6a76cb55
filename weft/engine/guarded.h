#pragma once

#include <new>
#include <string>

#include <c10/util/Exception.h>

#include "weft/base/result.h"

namespace weft {

/// What the user is told of an exception from LibTorch, whose own text is a stack trace: memory that ran out, or a bug.
Error explain_libtorch_error(const c10::Error& error);
Error memory_ran_out(const std::string& details = "");

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
