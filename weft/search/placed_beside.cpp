#include "weft/search/placed_beside.h"

#include <algorithm>

namespace weft {
namespace {

/// On every rank.
bool is_no_more(const PlanStages::Beside& a, const PlanStages::Beside& b) {
  if (a.entry_transfer_ms > b.entry_transfer_ms) return false;
  for (size_t rank = 0; rank < a.memory.size(); ++rank) {
    // The moment is one of several, of which the largest counts, on top of what is always there.
    if (a.memory[rank].static_gib + a.memory[rank].held_gib > b.memory[rank].static_gib + b.memory[rank].held_gib ||
        a.memory[rank].moment_gib > b.memory[rank].moment_gib || a.update_ms[rank] > b.update_ms[rank] ||
        a.backward_ms[rank] > b.backward_ms[rank])
      return false;
  }
  return true;
}

}  // namespace

double PlacedBeside::least_ms(const PlanStages::Beside& beside) const {
  double least_ms = 0;
  for (const Known& known : known_) {
    if (known.least_ms > least_ms && is_no_more(known.beside, beside)) least_ms = known.least_ms;
  }
  return least_ms;
}

void PlacedBeside::add(const PlanStages::Beside& beside, double least_ms) {
  if (this->least_ms(beside) >= least_ms) return;
  std::erase_if(known_,
                [&](const Known& known) { return known.least_ms <= least_ms && is_no_more(beside, known.beside); });
  known_.push_back({.beside = beside, .least_ms = least_ms});
}

}  // namespace weft
