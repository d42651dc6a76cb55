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

const char* colour_of(Mark mark) {
  switch (mark) {
    case Mark::kError:
      return "1;31";  // red
    case Mark::kNote:
      return "33";  // yellow
    case Mark::kProgress:
      return "2";  // faint
    default:
      return "1";
  }
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
  fmt::print(stderr, "\r\033[K{}", marked(printable(text, line_width() - kDots), Mark::kProgress));
  std::fflush(stderr);
}

std::string marked(const std::string& text, Mark mark) {
  if (text.empty() || !has_colours()) return text;
  return fmt::format("\033[{}m{}\033[0m", colour_of(mark), text);
}

void say(const std::string& text) {
  show_progress("");
  constexpr std::string_view kNote = "note:";
  const bool is_note = text.starts_with(kNote);
  fmt::print(stderr, "{} {}{}\n", marked("weft:", Mark::kPlace), is_note ? marked(std::string(kNote), Mark::kNote) : "",
             is_note ? text.substr(kNote.size()) : text);
  std::fflush(stderr);
}

}  // namespace weft
