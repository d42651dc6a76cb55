#pragma once

namespace weft {

/// Parses the arguments, runs the verb, prints its output or its error, and returns the exit status: 0 done, 1 the
/// job failed, 2 the input is wrong, 3 stopped by a signal with its state saved, 130 it was interrupted.
int run_command_line(int argc, char** argv);

}  // namespace weft
