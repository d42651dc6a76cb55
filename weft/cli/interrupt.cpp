#include "weft/cli/interrupt.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>
#include <optional>
#include <unistd.h>

namespace weft {
namespace {

// A handler can see nothing else.
std::atomic<bool> has_interrupt = false;
std::atomic<bool> has_saved_state = false;
std::array<char, 160> last_words{};
size_t num_last_words = 0;

void say_words() {
  [[maybe_unused]] const auto written = write(STDERR_FILENO, last_words.data(), num_last_words);
}

extern "C" void note_stop(int) {
  const int kept = errno;
  has_interrupt.store(true);
  say_words();
  errno = kept;
}

extern "C" void note_stop_once(int) {
  // Two signals may be handled at once, by two threads: one of them is the second.
  if (has_interrupt.exchange(true)) _exit(kInterrupted);
  note_stop(0);
}

extern "C" void say_and_end(int) {
  say_words();
  _exit(kInterrupted);
}

void keep_words(const std::string& text) {
  const std::string clear = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  const std::string words = text.empty() ? "" : clear + "weft: " + text + "\n";
  num_last_words = std::min(words.size(), last_words.size());
  std::copy_n(words.begin(), num_last_words, last_words.begin());
}

void handle_signal(int signal, void (*handler)(int), int flags) {
  struct sigaction before {};
  sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

void handle_interrupt(void (*handler)(int)) {
  handle_signal(SIGINT, handler, static_cast<int>(SA_RESETHAND));
}

}  // namespace

const std::atomic<bool>& stop_on_interrupt(std::string_view words) {
  keep_words(std::string(words));
  handle_interrupt(note_stop);
  return has_interrupt;
}

const std::atomic<bool>& stop_on_signals(std::string_view words) {
  keep_words(std::string(words));
  for (const int signal : {SIGINT, SIGTERM}) handle_signal(signal, note_stop_once, SA_RESTART);
  return has_interrupt;
}

InterruptPatience::InterruptPatience(const std::string& verb) {
  watch_ = std::thread([this, verb] {
    constexpr auto kPause = std::chrono::milliseconds(20);
    constexpr double kPatience_s = 0.8;
    const auto used_s = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
    std::optional<double> start_s;
    while (!is_over_.load()) {
      std::this_thread::sleep_for(kPause);
      if (!has_interrupt.load()) continue;
      if (!start_s) start_s = used_s();
      if (used_s() - *start_s < kPatience_s) continue;
      keep_words(verb + ": was interrupted before there was a result to keep. Let it run longer, or give it less.");
      say_and_end(SIGINT);
    }
  });
}

InterruptPatience::~InterruptPatience() {
  is_over_.store(true);
  watch_.join();
}

void note_saved_state() {
  has_saved_state.store(true);
}

std::optional<int> interrupted_status() {
  // The signal may have come to another rank's process.
  if (has_saved_state.load()) return kStoppedAndSaved;
  return has_interrupt.load() ? std::optional(kInterrupted) : std::nullopt;
}

void end_on_interrupt(const std::string& verb) {
  keep_words(verb + ": was interrupted before it was done. Start it again.");
  handle_interrupt(say_and_end);
}

}  // namespace weft
