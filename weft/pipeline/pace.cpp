#include "weft/pipeline/pace.h"

#include <chrono>
#include <thread>

namespace weft {

void keep_pace(const Pace& pace, const Action& action) {
  if (pace) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(pace(action)));
}

}  // namespace weft
