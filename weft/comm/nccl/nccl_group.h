#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "weft/comm/cuda/own_copies.h"
#include "weft/comm/group.h"
#include "weft/comm/nccl/nccl_plane.h"

namespace weft {

/// One process's end of a group on NCCL. Its collectives have a channel, and so have the messages of each pair in each
/// direction: on one communicator a rank that sends first and receives then would wait for another that does the same.
class NcclGroup : public GroupBackend {
 public:
  NcclGroup(OwnNcclPlane& plane, std::string name, std::vector<int64_t> ranks, uint64_t id);
  ~NcclGroup() override { NcclGroup::close(); }

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  std::optional<std::string> refusal_of(Device device) const override;
  void close() override;

 private:
  std::shared_ptr<NcclChannel> channel_for(const Operation& operation);

  OwnNcclPlane& plane_;
  std::string name_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  uint64_t id_;
  size_t own_;
  std::shared_ptr<OwnCopies> own_copies_;
  std::mutex mutex_;
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<NcclChannel>> channels_;  ///< by sender and receiver; -1: all
};

}  // namespace weft
