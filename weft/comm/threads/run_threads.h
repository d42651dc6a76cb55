#pragma once

#include <cstdint>
#include <functional>

#include "weft/comm/world.h"

namespace weft {

/// Runs the body on `size` threads of this process, one a rank, and returns when all have ended. If one throws or
/// returns while others wait for it, all end, and the first failure is thrown as a RankFailure, with what the rank
/// threw nested in it. Returns an Error if the records cannot be kept.
std::optional<Error> run_thread_ranks(int64_t size, const CommOptions& options,
                                      const std::function<void(World&)>& body);

}  // namespace weft
