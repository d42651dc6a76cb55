#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/process/process_rank.h"

namespace weft {

/// What this rank asks for, shown to the others of an operation, and theirs compared with it, before anything moves.
class Agreement {
 public:
  /// `number` counts the operation under the key that `key_at` gives for each place among `ranks`.
  Agreement(Watch& watch, const Operation& operation, const std::vector<int64_t>& ranks, size_t own, uint64_t group_id,
            uint64_t number);

  /// Whether all that take part have shown what they ask for.
  bool is_known();
  /// Then: how they disagree.
  const std::optional<std::string>& disagreement() const { return disagreement_; }

 private:
  /// A rank's part in it: what it asks for, and of an all-to-all the parts it sends and expects.
  struct Shown {
    Signature what;
    std::vector<int64_t> sent, expected;
  };
  static std::string packed(const Shown& shown);
  static Shown unpacked(const std::string& bytes);
  void compare();

  Watch& watch_;
  std::vector<int64_t> ranks_;  ///< that take part, in the world; of a message the sender first
  std::vector<uint64_t> keys_;  ///< under which each shows it
  std::vector<std::optional<Shown>> shown_;
  bool is_known_ = false;
  std::optional<std::string> disagreement_;
};

}  // namespace weft
