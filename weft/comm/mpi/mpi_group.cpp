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
          uint64_t number)
      : world_(world), transfers_(std::move(transfers)), note_(note), ranks_(std::move(ranks)), number_(number) {
    what_.kind = operation.kind;
    what_.peer = operation.peer;
    own_ = own;
    group_id_ = group_id;
  }

  bool poll() override {
    if (world_.engine().poll(transfers_.get()).is_over) {
      throw_disagreement();
      return true;
    }
    if (world_.watch().has_failed() || world_.engine().is_halted()) wait();
    return false;
  }

  void wait() override {
    world_.wait(
        *transfers_, note_, *ranks_, [this](size_t place) { return operation_key(group_id_, what_, own_, place); },
        number_);
    throw_disagreement();
  }

  void abandon() noexcept override {
    if (world_.engine().poll(transfers_.get()).is_over) return;
    // MPI cannot be told to let go of memory, but it touches none while nobody calls it.
    world_.engine().halt();
  }

 private:
  void throw_disagreement() const {
    if (!transfers_->disagreement()) return;
    throw RanksDisagree(fmt::format("the ranks of group '{}' disagree on operation {}: {}", note_.group.data(),
                                    note_.number, *transfers_->disagreement()));
  }

  MpiRank& world_;
  std::shared_ptr<MpiOperation> transfers_;
  Operation what_;  ///< kind and peer
  OperationNote note_;
  std::shared_ptr<const std::vector<int64_t>> ranks_;
  size_t own_ = 0;
  uint64_t group_id_ = 0;
  uint64_t number_;
};

}  // namespace

uint64_t operation_key(uint64_t group_id, const Operation& operation, size_t own, size_t place) {
  if (is_collective(operation.kind)) return group_id;
  // The rank itself counts what it sends or receives; its peer the other side of the same messages.
  const bool sends = (operation.kind == OperationKind::kSend) == (place == own);
  const size_t other = place == own ? static_cast<size_t>(operation.peer) : own;
  return (group_id ^ (other * 2 + (sends ? 1 : 0) + 1) * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
}

MpiGroup::MpiGroup(MpiRank& world, MpiChannel channel, std::vector<int64_t> ranks, uint64_t id)
    : world_(world),
      channel_(std::move(channel)),
      ranks_(std::make_shared<const std::vector<int64_t>>(std::move(ranks))),
      id_(id) {}

void MpiGroup::close() {
  const auto lock = world_.engine().lock();
  if (!world_.engine().is_halted()) check_mpi(MPI_Comm_free(&channel_.comm), "MPI_Comm_free");
}

std::unique_ptr<WorkState> MpiGroup::start(const Operation& operation, const OperationNote& note) {
  const auto own = static_cast<size_t>(channel_.rank);
  auto transfers = std::make_shared<MpiOperation>();
  uint64_t number = 0;
  {
    const auto lock = world_.engine().lock();
    number = world_.count(operation_key(id_, operation, own, own));
    add_transfers(transfers, operation, channel_, world_.options().is_checked, *ranks_);
  }
  world_.engine().start(transfers);
  return std::make_unique<MpiWork>(world_, std::move(transfers), operation, note, ranks_, own, id_, number);
}

}  // namespace weft
