#include "weft/search/combination.h"

#include <cmath>

namespace weft {

void Combination::add(const EncoderChoice& choice, const EncoderWork& work, int64_t pp) {
  const double work_ms = work.forwards_ms() + work.backwards_ms();
  if (choice.placement == ModulePlacement::kDisjoint) {
    own_ms = std::max(own_ms, work_ms);
    return;
  }
  const double held_gib = work.static_gib + (choice.runs_within() ? 1 : std::ceil(work.macros)) * work.held_gib;
  beside.last_moment = std::max(beside.last_moment, work.moment_gib);
  if (choice.placement == ModulePlacement::kPartial) {
    // Other ranks wait for its first macro batch only.
    first_ms = std::max(first_ms, work.first_forward_ms());
    partly_ms += work_ms * static_cast<double>(choice.stages) / static_cast<double>(pp);
    beside.last += held_gib;
    return;
  }
  beside.all += held_gib;
  beside.moment = std::max(beside.moment, work.moment_gib);
  if (choice.runs_within()) {
    within_ms += work_ms;
  } else {
    before_ms += work.forwards_ms();
    after_ms += work.backwards_ms();
  }
}

}  // namespace weft
