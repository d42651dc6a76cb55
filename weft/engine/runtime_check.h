#pragma once

#include "weft/engine/runtime_api.h"

namespace weft {

/// Takes one step of gradient descent on a small least-squares problem, in double precision, and compares autograd's
/// gradient with the closed form. Fails when they differ or the loss does not fall.
Result<RuntimeReport> check_runtime();

}  // namespace weft
