#pragma once

#include <filesystem>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/cuda/gpu_plane.h"
#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/staging.h"
#include "weft/comm/mpi/transfers.h"
#include "weft/comm/nccl/nccl_api.h"
#include "weft/comm/process/process_rank.h"

namespace weft {

/// One MPI process's end of the world. MPI is initialized before and finalized after it.
class MpiRank : public ProcessRank {
 public:
  /// What the processes of a host have in common.
  struct Host {
    int local_rank = 0;
    int num_local = 1;
    bool is_only = true;  ///< all processes are on this host

    static Host of_this_process(MPI_Comm comm);
  };

  /// All processes together.
  MpiRank(int64_t rank, int64_t size, const RunOptions& options, RunRecords records, const Host& host);
  ~MpiRank() override;

  std::string_view backend_name() const override;
  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) override;
  std::optional<Device> gpu() const override { return gpu_; }

  MpiEngine& engine() { return engine_; }
  MpiStaging& staging() { return staging_; }
  /// Whether GPU memory goes by NCCL, else through the host.
  bool uses_nccl() const { return plane_.plane == GpuPlane::kNccl; }
  /// It is taken into use when it is first asked for, so that runs without GPU memory need none of it.
  Result<NcclPlane*> nccl();
  void halt() noexcept override;
  bool is_halted() override { return ProcessRank::is_halted() || engine_.is_halted(); }
  std::optional<std::string> complaint() override { return engine_.error(); }

 protected:
  void meet_at_end(const OperationNote& note) override;

 private:
  /// Which GPU this rank has, and how all of them move GPU memory. All processes together.
  void choose_gpus(const Host& host);

  MpiTuning tuning_;
  std::filesystem::path nccl_library_;
  int tags_ = 0;
  MPI_Comm world_comm_ = MPI_COMM_NULL;
  MpiScratch scratch_;
  MpiStaging staging_;
  MpiEngine engine_;
  std::optional<Device> gpu_;
  GpuPlaneChoice plane_;
  std::mutex nccl_mutex_;
  std::optional<Result<std::unique_ptr<NcclPlane>>> nccl_;
};

}  // namespace weft
