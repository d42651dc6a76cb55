#pragma once

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>

#include "weft/base/check.h"

namespace weft {

/// A rank died, left early or stayed away, and others cannot go on. Every rank that needs it gets one; of all the
/// processes of a run, only the one whose failure says so shows its message.
class RankFailure : public std::runtime_error {
 public:
  RankFailure(const std::string& message, int64_t rank, bool should_print = true)
      : std::runtime_error(message), rank_(rank), should_print_(should_print) {}

  /// The rank in the world that is to blame.
  int64_t rank() const { return rank_; }
  bool should_print() const { return should_print_; }

 private:
  int64_t rank_;
  bool should_print_;
};

/// What is said of a rank that ended by an exception.
std::string how_it_failed(const std::exception_ptr& cause);

/// An operation that a caller got wrong on its own rank: buffers that do not fit, a closed group.
class CommMisuse : public InternalError {
  using InternalError::InternalError;
};

/// Ranks of a group that met in one operation and asked for different things.
class RanksDisagree : public InternalError {
  using InternalError::InternalError;
};

}  // namespace weft
