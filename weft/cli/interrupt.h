#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace weft {

/// Exit status of what Ctrl-C ended, as shells have it: 128 and the signal's number.
inline constexpr int kInterrupted = 130;
/// And of what a signal ended that has saved its state and can go on from there.
inline constexpr int kStoppedAndSaved = 3;

/// From now on Ctrl-C sets the flag that is returned, once, and shows these words as a line; a second one ends the
/// program. Where the caller ignores interrupts (nohup), so does this.
const std::atomic<bool>& stop_on_interrupt(std::string_view words = {});
/// The same of SIGTERM, too, which a scheduler sends before it takes a machine away; a second signal of either kind
/// ends the program.
const std::atomic<bool>& stop_on_signals(std::string_view words = {});

/// While this lives and Ctrl-C has set that flag, work that does not come to an end within a second is given up: the
/// program ends with a line that says so. The second is one of the processor, so that a busy machine gives up nothing.
class InterruptPatience {
 public:
  explicit InterruptPatience(const std::string& verb);
  ~InterruptPatience();
  InterruptPatience(const InterruptPatience&) = delete;
  InterruptPatience& operator=(const InterruptPatience&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::thread watch_;
};

/// What was interrupted has saved its state.
void note_saved_state();

/// The exit status of a job that fails because it was interrupted; nothing where it was not.
std::optional<int> interrupted_status();

/// From now on Ctrl-C ends the program with a line that says what was interrupted, and exit status 130.
void end_on_interrupt(const std::string& verb);

}  // namespace weft
