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
  /// What `for_gpus` is, takes operations on GPU memory; without it, they go through the host's memory.
  MpiGroup(MpiRank& world, MpiChannel channel, std::vector<int64_t> ranks, uint64_t id,
           std::unique_ptr<GroupBackend> for_gpus);

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  std::optional<std::string> refusal_of(Device device) const override;
  void close() override;

 private:
  MpiRank& world_;
  MpiChannel channel_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  uint64_t id_;
  std::unique_ptr<GroupBackend> for_gpus_;
};

}  // namespace weft
