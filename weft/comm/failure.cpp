#include "weft/comm/failure.h"

#include <fmt/format.h>

namespace weft {

std::string how_it_failed(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return fmt::format("failed: {}", error.what());
  } catch (...) {
    return "failed: it threw something that is no std::exception";
  }
}

}  // namespace weft
