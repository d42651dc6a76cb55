#include "weft/cli/terminal_line.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

bool has_colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool is_refused = no_color != nullptr && *no_color != '\0';
  return has_terminal() && !is_refused && term != nullptr && std::string_view(term) != "dumb";
}

size_t line_width() {
  constexpr size_t kUsual = 80;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : kUsual;
}

}  // namespace

bool has_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

void show_progress(const std::string& text) {
  if (!has_terminal()) return;
  // A line that wraps could not be replaced.
  constexpr size_t kDots = 4;
  fmt::print(stderr, "\r\033[K{}", printable(text, line_width() - kDots));
  std::fflush(stderr);
}

std::string marked(const std::string& text, Mark mark) {
  if (text.empty() || !has_colours()) return text;
  return fmt::format("\033[{}m{}\033[0m", mark == Mark::kError ? "1;31" : "1", text);
}

void say(const std::string& text) {
  show_progress("");
  fmt::print(stderr, "weft: {}\n", text);
}

}  // namespace weft
