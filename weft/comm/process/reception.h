#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/result.h"
#include "weft/comm/process/watch.h"

namespace weft {

// How processes come to have the connections of a Watch: rank 0 receives, and the others visit it.

/// What the others are told of rank 0's reception. Plain numbers, so that MPI can broadcast it.
struct Invitation {
  uint64_t token = 0;  ///< that this run's visitors show
  uint32_t num_hosts = 0;
  uint32_t port = 0;
  uint32_t hosts[32] = {};
};

/// Rank 0's.
class Reception {
 public:
  /// On a free port. Throws std::system_error.
  explicit Reception(bool is_local);
  /// On a port that the others know, where this token is shown.
  Reception(uint16_t port, uint64_t token);

  const Invitation& invitation() const { return invitation_; }
  /// Waits for the others and tells each the number of the run. Throws std::runtime_error when they do not come.
  std::vector<RankConnection> receive(int64_t size, uint64_t run, std::chrono::milliseconds patience);

 private:
  Invitation invitation_;
  Descriptor listener_;
};

/// The others' way to it.
std::vector<RankConnection> visit(const Invitation& invitation, int64_t rank);

/// The same by name and port, again and again until rank 0 is there. Returns the number of the run too.
struct Visit {
  std::vector<RankConnection> connections;
  uint64_t run = 0;
};
Result<Visit> visit(const std::string& host, uint16_t port, uint64_t token, int64_t rank,
                    std::chrono::milliseconds patience);

}  // namespace weft
