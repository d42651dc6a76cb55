#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/comm/traffic.h"
#include "weft/comm/world.h"

namespace weft {

/// An operation that a fake group was asked for, and what it would have sent.
struct FakeCall {
  std::string group;
  std::vector<int64_t> ranks;  ///< of the group, in the world
  Signature what;
  Traffic bytes;
  std::vector<SentBytes> sent;  ///< by receiver, as the world numbers ranks
};

/// What a fake world is told.
struct FakeOptions {
  int64_t rank = 0;
  int64_t size = 1;
  /// The operation, counted from 1 over all groups, that fails when it is waited for; 0: none does.
  int64_t fail_at = 0;
  /// Who is to blame then; the rank after this one when below 0.
  int64_t failing_rank = -1;
  CommOptions comm;
};

/// One rank of a world in which nobody else is: the other ranks come to every operation at once, hold zeros and send
/// zeros. Everything that is asked of it is recorded, so that a plan of hundreds of ranks can be checked in one thread.
class FakeWorld {
 public:
  explicit FakeWorld(const FakeOptions& options);

  World& world() { return world_; }
  const std::vector<FakeCall>& calls() const { return *calls_; }
  Traffic total_bytes() const;

 private:
  std::shared_ptr<std::vector<FakeCall>> calls_;
  World world_;
};

}  // namespace weft
