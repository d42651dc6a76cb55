#include "weft/comm/nccl/nccl_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/nccl/agreement.h"
#include "weft/comm/nccl/nccl_calls.h"

namespace weft {
namespace {

/// How long the news of how a rank ended may take after NCCL has lost it.
constexpr auto kNewsPatience = std::chrono::milliseconds(500);

/// Memory of the host on its way through the GPU's: what NCCL works on, and pinned copies of it that the GPU reads and
/// writes by itself.
class HostCopies {
 public:
  HostCopies(OwnNcclPlane& plane, const Operation& operation) : device_(plane.device()), operation_(operation) {
    on_device_ = operation;
    const bool is_in_place = operation.in.data == operation.out.data && operation.in.count == operation.out.count;
    if (operation.kind == OperationKind::kBarrier) {
      // NCCL has none: a sum that nobody reads.
      device_in_ = plane.on_device().take(bytes_per_element(DataType::kInt32));
      on_device_.in = ConstBuffer(device_in_.data(), 1, DataType::kInt32);
      on_device_.out = {.data = device_in_.data(), .count = 1, .type = DataType::kInt32};
      return;
    }
    if (operation.in.num_bytes() > 0) {
      in_ = plane.pinned().take(operation.in.num_bytes());
      device_in_ = plane.on_device().take(operation.in.num_bytes());
      std::memcpy(in_.data(), operation.in.data, static_cast<size_t>(operation.in.num_bytes()));
    }
    if (operation.out.num_bytes() > 0 && operation.kind != OperationKind::kSend) {
      out_ = plane.pinned().take(operation.out.num_bytes());
      if (!is_in_place) device_out_ = plane.on_device().take(operation.out.num_bytes());
    }
    on_device_.in.data = device_in_.data();
    on_device_.out.data = is_in_place ? device_in_.data() : device_out_.data();
  }
  ~HostCopies() {
    if (is_complete_) return;
    for (CudaMemory::Block* block : {&in_, &out_, &device_in_, &device_out_}) block->forget();
  }
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  const Operation& on_device() const { return on_device_; }

  void start_in(CudaStreamHandle stream) const {
    if (in_.data() == nullptr) return;
    device_->check(device_->driver().cuMemcpyHtoDAsync_v2(reinterpret_cast<CudaAddress>(device_in_.data()), in_.data(),
                                                          static_cast<size_t>(operation_.in.num_bytes()), stream),
                   "cuMemcpyHtoDAsync");
  }
  void start_out(CudaStreamHandle stream) const {
    if (out_.data() == nullptr) return;
    device_->check(
        device_->driver().cuMemcpyDtoHAsync_v2(out_.data(), reinterpret_cast<CudaAddress>(on_device_.out.data),
                                               static_cast<size_t>(operation_.out.num_bytes()), stream),
        "cuMemcpyDtoHAsync");
  }
  /// Once the GPU is done.
  void finish() {
    if (out_.data() != nullptr)
      std::memcpy(operation_.out.data, out_.data(), static_cast<size_t>(operation_.out.num_bytes()));
    is_complete_ = true;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  Operation operation_, on_device_;
  CudaMemory::Block in_, out_, device_in_, device_out_;
  bool is_complete_ = false;
};

/// One process's part in an operation.
class NcclWork : public WorkState {
 public:
  NcclWork(ProcessRank& world, std::shared_ptr<NcclChannel> channel, std::shared_ptr<NcclTask> task, Awaited awaited,
           std::shared_ptr<const std::vector<int64_t>> ranks, std::shared_ptr<HostCopies> host,
           std::shared_ptr<Agreement> agreement)
      : world_(world),
        channel_(std::move(channel)),
        task_(std::move(task)),
        ranks_(std::move(ranks)),
        host_(std::move(host)),
        agreement_(std::move(agreement)),
        awaited_(std::move(awaited)) {
    awaited_.poll = [this] { return Awaited::Progress{.is_over = is_over()}; };
  }

  bool poll() override {
    if (is_over()) return true;
    world_.look_for_failures(awaited_);
    return false;
  }
  void wait() override { world_.wait(awaited_); }
  void abandon() noexcept override {
    bool is_done = false;
    try {
      is_done = is_over();
    } catch (const std::exception&) {
      // What has failed is not done.
    }
    // This ends what is on the GPU.
    if (!is_done) world_.halt();
  }

 private:
  bool is_over() {
    if (is_finished_) return true;
    const NcclTask::State state = task_->state();  // once: the channel changes it
    if (state == NcclTask::State::kQueued) return false;
    if (state == NcclTask::State::kFailed) {
      if (agreement_ && agreement_->disagreement()) {
        throw RanksDisagree(fmt::format("the ranks of group '{}' disagree on operation {}: {}",
                                        awaited_.note.group.data(), awaited_.note.number, *agreement_->disagreement()));
      }
      fail(task_->complaint());
    }
    bool is_done = false;
    try {
      is_done = task_->is_done();
    } catch (const std::exception& error) {
      fail(error.what());
    }
    if (!is_done) {
      if (++num_looks_ % 1024 != 0) return false;
      if (const auto error = channel_->async_error()) fail(*error);
      return false;
    }
    if (host_) host_->finish();
    is_finished_ = true;
    return true;
  }

  /// NCCL's or the GPU's words, unless it comes out who is to blame.
  [[noreturn]] void fail(const std::string& complaint) {
    const auto until = std::chrono::steady_clock::now() + kNewsPatience;
    while (std::chrono::steady_clock::now() < until) {
      world_.look_for_failures(awaited_);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    world_.give_up({.rank = world_.rank(), .how = fmt::format("failed: {}", complaint)}, awaited_.note);
  }

  ProcessRank& world_;
  std::shared_ptr<NcclChannel> channel_;
  std::shared_ptr<NcclTask> task_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  std::shared_ptr<HostCopies> host_;  ///< of the host's memory
  std::shared_ptr<Agreement> agreement_;
  Awaited awaited_;
  int64_t num_looks_ = 0;
  bool is_finished_ = false;
};

}  // namespace

NcclGroup::NcclGroup(OwnNcclPlane& plane, std::string name, std::vector<int64_t> ranks, uint64_t id)
    : plane_(plane),
      name_(std::move(name)),
      ranks_(std::make_shared<const std::vector<int64_t>>(std::move(ranks))),
      id_(id),
      own_(static_cast<size_t>(std::find(ranks_->begin(), ranks_->end(), plane.world().rank()) - ranks_->begin())),
      own_copies_(std::make_shared<OwnCopies>(plane.world().options())) {}

std::optional<std::string> NcclGroup::refusal_of(Device device) const {
  const Device own{DeviceKind::kCuda, plane_.device()->index()};
  if (device.kind == DeviceKind::kCpu || device == own) return {};
  return fmt::format("memory on cpu or on {}, this rank's GPU", text(own));
}

std::shared_ptr<NcclChannel> NcclGroup::channel_for(const Operation& operation) {
  std::pair<int64_t, int64_t> pair{-1, -1};
  const auto own = static_cast<int64_t>(own_);
  if (operation.kind == OperationKind::kSend) pair = {own, operation.peer};
  if (operation.kind == OperationKind::kRecv) pair = {operation.peer, own};
  const std::lock_guard lock(mutex_);
  std::shared_ptr<NcclChannel>& channel = channels_[pair];
  if (!channel) {
    const uint64_t key =
        (id_ ^ static_cast<uint64_t>((pair.first + 1) * 0x100000 + pair.second + 2) * 0x9e3779b97f4a7c15u) *
        0xc2b2ae3d27d4eb4fu;
    channel = pair.first < 0 ? plane_.make_channel(key, static_cast<int>(own_), static_cast<int>(ranks_->size()))
                             : plane_.make_channel(key, operation.kind == OperationKind::kSend ? 0 : 1, 2);
  }
  return channel;
}

std::unique_ptr<WorkState> NcclGroup::start(const Operation& operation, const OperationNote& note) {
  ProcessRank& world = plane_.world();
  const uint64_t number = world.count(operation_key(id_, operation.kind, operation.peer, own_, own_));
  if (!is_collective(operation.kind) && operation.peer == static_cast<int64_t>(own_))
    return own_copies_->start(operation);
  Awaited awaited{.note = note,
                  .ranks = *ranks_,
                  .key_at = [id = id_, kind = operation.kind, peer = operation.peer,
                             own = own_](size_t place) { return operation_key(id, kind, peer, own, place); },
                  .number = number,
                  .peer = is_collective(operation.kind) ? -1 : operation.peer,
                  .poll = {}};
  if (world.is_halted() || world.watch().has_failed()) world.look_for_failures(awaited);

  const ConstBuffer any = operation.kind == OperationKind::kRecv ? ConstBuffer(operation.out) : operation.in;
  auto task = std::make_shared<NcclTask>();
  std::shared_ptr<HostCopies> host;
  std::shared_ptr<Agreement> agreement;
  Operation on_device = operation;
  if (any.device.kind == DeviceKind::kCpu) {
    host = std::make_shared<HostCopies>(plane_, operation);
    on_device = host->on_device();
  } else {
    task->before.push_back(std::make_unique<CudaEvent>(plane_.device(), any.stream));
    const bool has_two = operation.kind != OperationKind::kSend && operation.out.stream != any.stream;
    if (has_two) task->before.push_back(std::make_unique<CudaEvent>(plane_.device(), operation.out.stream));
  }
  if (world.options().is_checked && ranks_->size() > 1) {
    agreement = std::make_shared<Agreement>(world.watch(), operation, *ranks_, own_, id_, number);
    task->may_begin = [agreement] {
      if (!agreement->is_known()) return false;
      if (agreement->disagreement()) throw RanksDisagree(*agreement->disagreement());
      return true;
    };
  }
  task->launch = [&nccl = plane_.nccl(), host, on_device, rank = static_cast<int64_t>(own_),
                  size = static_cast<int64_t>(ranks_->size())](NcclComm comm, CudaStreamHandle stream) {
    if (host) host->start_in(stream);
    call_collective(nccl, on_device, rank, size, comm, stream);
    if (host) host->start_out(stream);
  };
  const std::shared_ptr<NcclChannel> channel = channel_for(operation);
  channel->push(task);
  return std::make_unique<NcclWork>(world, channel, std::move(task), std::move(awaited), ranks_, std::move(host),
                                    std::move(agreement));
}

void NcclGroup::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& [pair, channel] : channels_) channel->close_soon();
}

}  // namespace weft
