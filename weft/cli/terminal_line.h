#pragma once

#include <string>

namespace weft {

/// Whether a person sees standard error.
bool has_terminal();

/// A line that the next one replaces, as far as the terminal is wide; nothing where nobody sees it.
void show_progress(const std::string& text);

/// What marks parts of a message on standard error.
enum class Mark { kError, kPlace, kNote, kProgress };
/// The text in a colour, where standard error is a terminal that has them and NO_COLOR (no-color.org) is not set.
std::string marked(const std::string& text, Mark mark);

/// A line about the run, below what is shown and above what follows: "weft: TEXT".
void say(const std::string& text);

}  // namespace weft
