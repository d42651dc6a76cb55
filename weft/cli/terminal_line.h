#pragma once

#include <string>

namespace weft {

/// Whether a person sees standard error.
bool has_terminal();

/// A line that the next one replaces; nothing where nobody sees it.
void show_progress(const std::string& text);

}  // namespace weft
