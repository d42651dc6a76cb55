#include "weft/cli/terminal_line.h"

#include <cstdio>
#include <unistd.h>

#include <fmt/format.h>

namespace weft {

bool has_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

void show_progress(const std::string& text) {
  if (!has_terminal()) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

}  // namespace weft
