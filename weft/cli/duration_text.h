#pragma once

#include <string>

namespace weft {

/// "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h": a duration as people say it.
std::string duration_text(double seconds);

}  // namespace weft
