#include "weft/comm/mpi/mpi_group.h"

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/mpi/small_all_reduce.h"

namespace weft {
namespace {

/// Looks that are taken before waiting is taken seriously: most short operations are over by then.
constexpr int kQuickLooks = 16;

/// One process's part in an operation.
class MpiWork : public WorkState {
 public:
  /// What this is number `number` of, to those who wait for it.
  struct Place {
    std::shared_ptr<const std::vector<int64_t>> ranks;
    size_t own = 0;
    uint64_t group_id = 0;
    OperationKind kind = OperationKind::kBarrier;
    int64_t peer = -1;
    uint64_t number = 0;
  };

  MpiWork(MpiRank& world, std::shared_ptr<MpiOperation> transfers, const OperationNote& note, Place place,
          std::shared_ptr<StagedOperation> staged)
      : world_(world),
        transfers_(std::move(transfers)),
        note_(note),
        place_(std::move(place)),
        staged_(std::move(staged)) {}

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
      if (!is_soon_over()) wait_long();
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
  bool is_soon_over() {
    for (int look = 0; look < kQuickLooks; ++look) {
      if (world_.engine().poll(transfers_.get()).is_over) return true;
    }
    return false;
  }

  void wait_long() {
    world_.wait({.note = note_,
                 .ranks = *place_.ranks,
                 .key_at =
                     [this](size_t place) {
                       return operation_key(place_.group_id, place_.kind, place_.peer, place_.own, place);
                     },
                 .number = place_.number,
                 .peer = is_collective(place_.kind) ? -1 : place_.peer,
                 .poll = [this] { return world_.engine().poll(transfers_.get()); }});
  }

  void throw_disagreement() const {
    if (!transfers_->disagreement()) return;
    throw RanksDisagree(fmt::format("the ranks of group '{}' disagree on operation {}: {}", note_.group.data(),
                                    note_.number, *transfers_->disagreement()));
  }

  MpiRank& world_;
  std::shared_ptr<MpiOperation> transfers_;
  OperationNote note_;
  Place place_;
  std::shared_ptr<StagedOperation> staged_;  ///< of GPU memory
};

}  // namespace

MpiGroup::MpiGroup(MpiRank& world, MpiChannel channel, std::string name, std::vector<int64_t> ranks, uint64_t id)
    : world_(world),
      channel_(std::move(channel)),
      name_(std::move(name)),
      ranks_(std::make_shared<const std::vector<int64_t>>(std::move(ranks))),
      id_(id),
      num_collectives_(world.counter(id)) {}

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

std::shared_ptr<MpiOperation> MpiGroup::transfers_of(const Operation& operation,
                                                     const std::shared_ptr<StagedOperation>& staged) {
  const bool is_checked = world_.options().is_checked;
  if (!staged && !is_checked && SmallAllReduce::takes(operation, channel_)) {
    return std::make_shared<SmallAllReduce>(operation, channel_);
  }
  auto stages = std::make_shared<MpiStages>();
  if (staged) stages->add_gate([staged] { return staged->is_on_host(); });
  add_transfers(stages, staged ? staged->on_host() : operation, channel_, is_checked, *ranks_);
  if (staged) {
    stages->add_chain({[staged](MpiRequests&) { staged->start_back(); }});
    stages->add_gate([staged] { return staged->is_back(); });
  }
  return stages;
}

std::unique_ptr<WorkState> MpiGroup::start(const Operation& operation, const OperationNote& note) {
  const Device device = operation.kind == OperationKind::kRecv ? operation.out.device : operation.in.device;
  const bool is_on_gpu = device.kind == DeviceKind::kCuda;
  if (is_on_gpu && world_.uses_nccl()) return (*for_gpus())->start(operation, note);
  const auto own = static_cast<size_t>(channel_.rank);
  std::shared_ptr<StagedOperation> staged = is_on_gpu ? world_.staging().stage(operation, channel_.rank) : nullptr;
  const uint64_t number = is_collective(operation.kind)
                              ? ++num_collectives_
                              : world_.count(operation_key(id_, operation.kind, operation.peer, own, own));
  auto lock = world_.engine().lock();
  std::shared_ptr<MpiOperation> transfers = transfers_of(operation, staged);
  world_.engine().start(transfers, std::move(lock));
  return std::make_unique<MpiWork>(world_, std::move(transfers), note,
                                   MpiWork::Place{.ranks = ranks_,
                                                  .own = own,
                                                  .group_id = id_,
                                                  .kind = operation.kind,
                                                  .peer = operation.peer,
                                                  .number = number},
                                   std::move(staged));
}

}  // namespace weft
