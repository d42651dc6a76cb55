#include "weft/cli/interrupt.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <unistd.h>

namespace weft {
namespace {

// A handler can see nothing else.
std::atomic<bool> has_interrupt = false;
std::array<char, 160> last_words{};
size_t num_last_words = 0;

extern "C" void note_stop(int) {
  has_interrupt.store(true);
}

extern "C" void say_and_end(int) {
  constexpr int kFailed = 1;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, last_words.data(), num_last_words);
  _exit(kFailed);
}

void handle_interrupt(void (*handler)(int)) {
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

const std::atomic<bool>& stop_on_interrupt() {
  handle_interrupt(note_stop);
  return has_interrupt;
}

void end_on_interrupt(const std::string& verb) {
  const std::string clear = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  const std::string words = clear + "weft: " + verb + ": was interrupted before it was done. Start it again.\n";
  num_last_words = std::min(words.size(), last_words.size());
  std::copy_n(words.begin(), num_last_words, last_words.begin());
  handle_interrupt(say_and_end);
}

}  // namespace weft
