#pragma once

#include <functional>

#include "weft/schedule/action.h"

namespace weft {

/// Milliseconds that an action sleeps after its own work, before it hands anything on. With small models and times of
/// large ones, ranks that share few processors then show how a schedule runs on as many devices. Empty: none sleeps.
using Pace = std::function<double(const Action& action)>;

void keep_pace(const Pace& pace, const Action& action);

}  // namespace weft
