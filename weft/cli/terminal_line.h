#pragma once

#include <string>

namespace weft {

/// Whether a person sees standard error.
bool has_terminal();

/// A line on the terminal that the next one replaces.
void show_progress(const std::string& text);

}  // namespace weft
