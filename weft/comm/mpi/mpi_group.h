#pragma once

#include <memory>
#include <mpi.h>
#include <vector>

#include "weft/comm/group.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {

/// One process's end of a group.
class MpiGroup : public GroupBackend {
 public:
  /// `id` is the same on all of the group's ranks and that of no other group.
  MpiGroup(MpiRank& world, MpiChannel channel, std::vector<int64_t> ranks, uint64_t id);

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  bool takes(Device device) const override { return device.kind == DeviceKind::kCpu; }
  void close() override;

 private:
  MpiRank& world_;
  MpiChannel channel_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  uint64_t id_;
};

/// The key under which the rank at `place` of a group counts its part in an operation that the rank at `own` takes part
/// in: collectives count together, messages by pair and direction.
uint64_t operation_key(uint64_t group_id, const Operation& operation, size_t own, size_t place);

}  // namespace weft
