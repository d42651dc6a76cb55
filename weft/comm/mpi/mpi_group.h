#pragma once

#include <atomic>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/group.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {

/// One process's end of a group.
class MpiGroup : public GroupBackend {
 public:
  /// `id` is the same on all of the group's ranks and that of no other group.
  MpiGroup(MpiRank& world, MpiChannel channel, std::string name, std::vector<int64_t> ranks, uint64_t id);

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  std::optional<std::string> refusal_of(Device device) const override;
  void close() override;

 private:
  /// The same group on NCCL.
  Result<GroupBackend*> for_gpus() const;
  /// The same operation as messages. Under the engine's lock.
  std::shared_ptr<MpiOperation> transfers_of(const Operation& operation,
                                             const std::shared_ptr<StagedOperation>& staged);

  MpiRank& world_;
  MpiChannel channel_;
  std::string name_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  uint64_t id_;
  std::atomic<uint64_t>& num_collectives_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<GroupBackend> for_gpus_;  ///< when it has been used
};

}  // namespace weft
