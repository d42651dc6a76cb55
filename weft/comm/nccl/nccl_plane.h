#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "weft/comm/cuda/cuda_memory.h"
#include "weft/comm/nccl/nccl_api.h"
#include "weft/comm/nccl/nccl_channel.h"

namespace weft {

/// What the NCCL groups of a rank share: a GPU, memory for what comes from the host, and the channels.
class OwnNcclPlane : public NcclPlane {
 public:
  /// An Error where NCCL or the GPU cannot be used.
  static Result<std::unique_ptr<OwnNcclPlane>> create(ProcessRank& rank, int gpu);
  ~OwnNcclPlane() override { break_off(); }

  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks,
                                           uint64_t id) override;
  void break_off() noexcept override;
  void close() override;

  ProcessRank& world() { return world_; }
  const NcclLibrary& nccl() const { return nccl_; }
  const std::shared_ptr<CudaDevice>& device() const { return device_; }
  CudaMemory& pinned() { return *pinned_; }
  CudaMemory& on_device() { return *on_device_; }
  /// A new one, whose end this waits for.
  std::shared_ptr<NcclChannel> make_channel(uint64_t key, int rank, int size);

 private:
  OwnNcclPlane(ProcessRank& rank, const NcclLibrary& nccl, const std::shared_ptr<CudaDevice>& device);

  ProcessRank& world_;
  const NcclLibrary& nccl_;
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<CudaMemory> pinned_, on_device_;
  std::mutex mutex_;
  std::list<std::shared_ptr<NcclChannel>> channels_;
  bool is_aborted_ = false;
};

}  // namespace weft
