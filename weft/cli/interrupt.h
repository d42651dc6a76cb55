#pragma once

#include <atomic>
#include <string>

namespace weft {

/// From now on Ctrl-C sets the flag that is returned, once: a second one ends the program. Where the caller ignores
/// interrupts (nohup), so does this.
const std::atomic<bool>& stop_on_interrupt();

/// From now on Ctrl-C ends the program with a line that says what was interrupted, and exit status 1.
void end_on_interrupt(const std::string& verb);

}  // namespace weft
