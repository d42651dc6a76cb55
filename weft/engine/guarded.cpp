#include "weft/engine/guarded.h"

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kLongestReason = 300;

}  // namespace

Error memory_ran_out(const std::string& details, const std::string& advice) {
  return {.kind = ErrorKind::kJob,
          .problem = details.empty() ? "memory ran out" : fmt::format("memory ran out: {}", details),
          .advice = advice};
}

Error explain_libtorch_error(const c10::Error& error, const std::string& memory_advice) {
  std::string reason = error.what_without_backtrace();
  reason = reason.substr(0, reason.find('\n'));
  const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
                         reason.find("allocate memory") != std::string::npos ||
                         reason.find("not enough memory") != std::string::npos ||
                         reason.find("out of memory") != std::string::npos;
  if (is_memory) {
    // "... you tried to allocate N bytes. Error code 12 (...)"
    const size_t asked = reason.find("ried to allocate");
    if (asked == std::string::npos) return memory_ran_out("", memory_advice);
    return memory_ran_out(printable("t" + reason.substr(asked, reason.find(". ", asked) - asked), kLongestReason),
                          memory_advice);
  }
  return {.kind = ErrorKind::kJob,
          .source = "internal error",
          .problem = fmt::format("LibTorch refused an operation: {}", printable(reason, kLongestReason)),
          .advice = "This is a bug in Weft; please report it with the command and its files."};
}

}  // namespace weft
