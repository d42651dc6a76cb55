#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "weft/meaning/program_exchanges.h"

namespace weft {

/// What blocks of programs mean to their ranks, worked out once each: prices ask for every microbatch of every drawn
/// batch, and the flow of a block depends on none of them.
class ProgramMeanings {
 public:
  std::shared_ptr<const ProgramMeaning> of(const std::shared_ptr<const BlockProgram>& block,
                                           const ProgramMeaning::Ranks& ranks);

 private:
  using Key = std::tuple<const BlockProgram*, int64_t, bool, bool, int64_t, int64_t>;
  struct Entry {
    std::shared_ptr<const BlockProgram> block;  ///< kept, so that its address is no other's
    std::shared_ptr<const ProgramMeaning> meaning;
  };

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace weft
