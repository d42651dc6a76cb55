#include "weft/comm/mpi/mpi_group.h"

#include <fmt/format.h>

#include "weft/comm/failure.h"

namespace weft {
namespace {

/// One process's part in an operation.
class MpiWork : public WorkState {
 public:
  MpiWork(MpiRank& world, std::shared_ptr<MpiOperation> transfers, const Operation& operation,
          const OperationNote& note, std::shared_ptr<const std::vector<int64_t>> ranks, size_t own, uint64_t group_id,
          uint64_t number, std::shared_ptr<StagedOperation> staged)
      : world_(world),
        transfers_(std::move(transfers)),
        ranks_(std::move(ranks)),
        staged_(std::move(staged)),
        awaited_{.note = note,
                 .ranks = *ranks_,
                 .key_at = [group_id, kind = operation.kind, peer = operation.peer,
                            own](size_t place) { return operation_key(group_id, kind, peer, own, place); },
                 .number = number,
                 .poll = [this] { return world_.engine().poll(transfers_.get()); }} {}

  bool poll() override {
    if (world_.engine().poll(transfers_.get()).is_over) {
      throw_disagreement();
      return true;
    }
    if (world_.watch().has_failed() || world_.is_halted()) wait();
    return false;
  }

  void wait() override {
    try {
      const MpiEngine::Waiter waiter(world_.engine());
      world_.wait(awaited_);
    } catch (...) {
      if (staged_) staged_->finish();
      throw;
    }
    throw_disagreement();
  }

  void abandon() noexcept override {
    if (!world_.engine().poll(transfers_.get()).is_over) {
      // MPI cannot be told to let go of memory, but it touches none while nobody calls it.
      world_.engine().halt();
    }
    if (staged_) staged_->finish();
  }

 private:
  void throw_disagreement() const {
    if (!transfers_->disagreement()) return;
    throw RanksDisagree(fmt::format("the ranks of group '{}' disagree on operation {}: {}", awaited_.note.group.data(),
                                    awaited_.note.number, *transfers_->disagreement()));
  }

  MpiRank& world_;
  std::shared_ptr<MpiOperation> transfers_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  std::shared_ptr<StagedOperation> staged_;  ///< of GPU memory
  Awaited awaited_;
};

}  // namespace

MpiGroup::MpiGroup(MpiRank& world, MpiChannel channel, std::string name, std::vector<int64_t> ranks, uint64_t id)
    : world_(world),
      channel_(std::move(channel)),
      name_(std::move(name)),
      ranks_(std::make_shared<const std::vector<int64_t>>(std::move(ranks))),
      id_(id) {}

Result<GroupBackend*> MpiGroup::for_gpus() const {
  WEFT_TRY(NcclPlane * nccl, world_.nccl());
  const std::lock_guard lock(mutex_);
  if (!for_gpus_) for_gpus_ = nccl->make_group(name_, *ranks_, id_);
  return for_gpus_.get();
}

std::optional<std::string> MpiGroup::refusal_of(Device device) const {
  if (device.kind == DeviceKind::kCpu) return {};
  if (world_.uses_nccl()) {
    const auto nccl = for_gpus();
    if (nccl) return (*nccl)->refusal_of(device);
    return fmt::format("memory on cpu, since NCCL cannot be used: {}", nccl.error().message());
  }
  return device.index >= 0 && device.index < num_gpus() ? std::nullopt : std::optional(memory_of_gpus_text());
}

void MpiGroup::close() {
  if (const std::lock_guard gpu_lock(mutex_); for_gpus_) for_gpus_->close();
  const auto lock = world_.engine().lock();
  if (!world_.engine().is_halted()) check_mpi(MPI_Comm_free(&channel_.comm), "MPI_Comm_free");
}

std::unique_ptr<WorkState> MpiGroup::start(const Operation& operation, const OperationNote& note) {
  const Device device = operation.kind == OperationKind::kRecv ? operation.out.device : operation.in.device;
  const bool is_on_gpu = device.kind == DeviceKind::kCuda;
  if (is_on_gpu && world_.uses_nccl()) return (*for_gpus())->start(operation, note);
  const auto own = static_cast<size_t>(channel_.rank);
  const std::shared_ptr<StagedOperation> staged =
      is_on_gpu ? world_.staging().stage(operation, channel_.rank) : nullptr;
  auto transfers = std::make_shared<MpiOperation>();
  const uint64_t number = world_.count(operation_key(id_, operation.kind, operation.peer, own, own));
  {
    const auto lock = world_.engine().lock();
    if (staged) transfers->add_gate([staged] { return staged->is_on_host(); });
    add_transfers(transfers, staged ? staged->on_host() : operation, channel_, world_.options().is_checked, *ranks_);
    if (staged) {
      transfers->add_chain({[staged](MpiRequests&) { staged->start_back(); }});
      transfers->add_gate([staged] { return staged->is_back(); });
    }
  }
  world_.engine().start(transfers);
  return std::make_unique<MpiWork>(world_, std::move(transfers), operation, note, ranks_, own, id_, number, staged);
}

}  // namespace weft
