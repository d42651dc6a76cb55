#pragma once

#include "weft/comm/launch.h"
#include "weft/comm/nccl/nccl_plane.h"

namespace weft {

/// One process's end of a world of processes that a launcher started with nothing but the environment: NCCL moves
/// everything, also the host's memory.
class EnvironmentWorld : public ProcessRank {
 public:
  EnvironmentWorld(const EnvironmentRank& own, const RunOptions& options, RunRecords records,
                   std::vector<RankConnection> connections);
  ~EnvironmentWorld() override;

  std::string_view backend_name() const override { return "NCCL"; }
  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) override;
  std::optional<Device> gpu() const override { return Device{DeviceKind::kCuda, gpu_}; }
  void halt() noexcept override;

  /// Takes the GPU and NCCL into use. Returns what went wrong.
  std::optional<Error> start_plane();

 protected:
  void meet_at_end(const OperationNote& note) override;

 private:
  int gpu_;
  std::unique_ptr<NcclPlane> plane_;
};

/// Runs the body as the rank that the environment says this process is.
std::optional<Error> run_environment_rank(const RunOptions& options, const std::function<void(World&)>& body);

}  // namespace weft
