#include "weft/search/combination.h"

#include <cmath>

namespace weft {

void Combination::add(const EncoderChoice& choice, const EncoderWork& work, int64_t pp) {
  const double work_ms = work.forwards_ms() + work.backwards_ms();
  if (choice.placement == ModulePlacement::kDisjoint) {
    own_ms = std::max(own_ms, work_ms);
  } else if (choice.runs_within()) {
    within_ms += work_ms;
    beside_gib += work.static_gib + work.held_gib;
  } else if (choice.placement == ModulePlacement::kPartial) {
    // Other ranks wait for its first macro batch only.
    first_ms = std::max(first_ms, work.first_forward_ms());
    partly_ms += work_ms * static_cast<double>(choice.stages) / static_cast<double>(pp);
  } else {
    before_ms += work.forwards_ms();
    after_ms += work.backwards_ms();
    beside_gib += work.static_gib + std::ceil(work.macros) * work.held_gib;
  }
}

}  // namespace weft
