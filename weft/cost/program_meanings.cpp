#include "weft/cost/program_meanings.h"

namespace weft {

std::shared_ptr<const ProgramMeaning> ProgramMeanings::of(const std::shared_ptr<const BlockProgram>& block,
                                                          const ProgramMeaning::Ranks& ranks) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[{block.get(), ranks.tp, ranks.divides_rows, ranks.reduces_first, ranks.ulysses, ranks.ring}];
  if (!entry.meaning) entry = {block, std::make_shared<ProgramMeaning>(*block, ranks)};
  return entry.meaning;
}

}  // namespace weft
