#include "weft/comm/mpi/staging.h"

#include <stdexcept>

namespace weft {

StagedOperation::StagedOperation(std::shared_ptr<StagingDevice> device, const Operation& operation, int64_t rank)
    : device_(std::move(device)), operation_(operation), host_(operation) {
  const bool is_root = operation.kind == OperationKind::kBroadcast && operation.peer == rank;
  const bool reads = operation.kind != OperationKind::kRecv && (operation.kind != OperationKind::kBroadcast || is_root);
  comes_back_ = operation.kind != OperationKind::kSend && !is_root && operation.out.num_bytes() > 0;
  const bool is_in_place = operation.in.data == operation.out.data && operation.in.count == operation.out.count;
  const auto on_host = [](auto& buffer, std::byte* memory) {
    buffer.data = memory;
    buffer.device = {};
    buffer.stream = nullptr;
  };
  if (operation.in.num_bytes() > 0) in_ = device_->pinned->take(operation.in.num_bytes());
  if (!is_in_place && operation.out.num_bytes() > 0) out_ = device_->pinned->take(operation.out.num_bytes());
  on_host(host_.in, in_.data());
  on_host(host_.out, is_in_place ? in_.data() : out_.data());

  const CudaDevice& gpu = *device_->device;
  const OnCudaDevice on(gpu);
  if (reads && operation.in.num_bytes() > 0) {
    const CudaStreamHandle stream = device_->to_host.handle();
    CudaEvent(device_->device, operation.in.stream).hold(stream);
    gpu.check(gpu.driver().cuMemcpyDtoHAsync_v2(in_.data(), reinterpret_cast<CudaAddress>(operation.in.data),
                                                static_cast<size_t>(operation.in.num_bytes()), stream),
              "cuMemcpyDtoHAsync");
    copied_in_ = std::make_unique<CudaEvent>(device_->device, stream);
  }
  if (comes_back_) before_out_ = std::make_unique<CudaEvent>(device_->device, operation.out.stream);
}

StagedOperation::~StagedOperation() {
  if (is_complete_) return;
  // MPI may still know the memory.
  in_.forget();
  out_.forget();
}

void StagedOperation::start_back() {
  if (!comes_back_) return;
  const CudaDevice& gpu = *device_->device;
  const OnCudaDevice on(gpu);
  const CudaStreamHandle stream = device_->from_host.handle();
  before_out_->hold(stream);
  gpu.check(gpu.driver().cuMemcpyHtoDAsync_v2(reinterpret_cast<CudaAddress>(operation_.out.data), host_.out.data,
                                              static_cast<size_t>(operation_.out.num_bytes()), stream),
            "cuMemcpyHtoDAsync");
  copied_out_ = std::make_unique<CudaEvent>(device_->device, stream);
}

bool StagedOperation::is_back() {
  is_complete_ = !copied_out_ || copied_out_->is_done();
  return is_complete_;
}

void StagedOperation::finish() noexcept {
  try {
    if (copied_in_) copied_in_->wait();
    if (copied_out_) copied_out_->wait();
  } catch (const std::exception&) {
    // A GPU that has failed touches nothing.
  }
}

std::shared_ptr<StagedOperation> MpiStaging::stage(const Operation& operation, int64_t rank) {
  const int index = operation.kind == OperationKind::kRecv ? operation.out.device.index : operation.in.device.index;
  std::shared_ptr<StagingDevice> device;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<StagingDevice>& kept = devices_[index];
    if (!kept) {
      auto opened = CudaDevice::open(index);
      if (!opened) throw std::runtime_error(opened.error().message());
      kept = std::make_shared<StagingDevice>(*opened);
    }
    device = kept;
  }
  return std::make_shared<StagedOperation>(std::move(device), operation, rank);
}

}  // namespace weft
