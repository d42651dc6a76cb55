#include "tests/support/comm/fake_world.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "weft/comm/failure.h"

namespace weft {
namespace {

/// Done from the start, or failed.
class FakeWork : public WorkState {
 public:
  FakeWork() = default;
  explicit FakeWork(const RankFailure& failure) : failure_(failure) {}

  bool poll() override {
    wait();
    return true;
  }
  void wait() override {
    if (failure_) throw *failure_;
  }
  void abandon() noexcept override {}

 private:
  std::optional<RankFailure> failure_;
};

void fill_with_zeros(const Buffer& buffer) {
  if (buffer.count > 0) std::memset(buffer.data, 0, static_cast<size_t>(buffer.num_bytes()));
}

void copy(const ConstBuffer& from, const Buffer& to) {
  if (from.count > 0) std::memmove(to.data, from.data, static_cast<size_t>(from.num_bytes()));
}

/// The reduction of this rank's input with the others' zeros, in rank order.
void reduce_with_zeros(const Operation& op, const ConstBuffer& in, int64_t rank, int64_t size) {
  if (in.count == 0) return;
  const std::vector<std::byte> zeros(static_cast<size_t>(in.num_bytes()));
  std::vector<const std::byte*> inputs(static_cast<size_t>(size), zeros.data());
  inputs[static_cast<size_t>(rank)] = static_cast<const std::byte*>(in.data);
  std::byte* const output = static_cast<std::byte*>(op.out.data);
  reduce(op.reduction, in.type, inputs, {&output, 1}, in.count);
}

void pretend(const Operation& op, int64_t rank, int64_t size) {
  const PartRange in_part = part_of(op.in.count, op.in_counts, rank, size);
  const PartRange out_part = part_of(op.out.count, op.out_counts, rank, size);
  switch (op.kind) {
    case OperationKind::kAllReduce:
      return reduce_with_zeros(op, op.in, rank, size);
    case OperationKind::kReduceScatter:
      return reduce_with_zeros(op, op.in.part(in_part.begin, in_part.size), rank, size);
    case OperationKind::kAllGather:
    case OperationKind::kAllToAll: {
      const ConstBuffer own = op.kind == OperationKind::kAllGather ? op.in : op.in.part(in_part.begin, in_part.size);
      copy(own, op.out.part(out_part.begin, out_part.size));
      fill_with_zeros(op.out.part(0, out_part.begin));
      const int64_t end = out_part.begin + out_part.size;
      return fill_with_zeros(op.out.part(end, op.out.count - end));
    }
    case OperationKind::kBroadcast:
      if (op.peer != rank) fill_with_zeros(op.out);
      return;
    case OperationKind::kRecv:
      return fill_with_zeros(op.out);
    case OperationKind::kSend:
    case OperationKind::kBarrier:
      return;
  }
}

class FakeRank;

class FakeGroup : public GroupBackend {
 public:
  FakeGroup(FakeRank& world, std::string name, std::vector<int64_t> ranks, int64_t rank)
      : world_(world), name_(std::move(name)), ranks_(std::move(ranks)), rank_(rank) {}

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) override;
  std::optional<std::string> refusal_of(Device device) const override {
    if (device.kind == DeviceKind::kCpu) return {};
    return "memory on cpu, which the fake can move";
  }

 private:
  FakeRank& world_;
  std::string name_;
  std::vector<int64_t> ranks_;
  int64_t rank_;
};

class FakeRank : public WorldBackend {
 public:
  FakeRank(const FakeOptions& options, std::shared_ptr<std::vector<FakeCall>> calls)
      : WorldBackend(options.rank, options.size, options.comm), options_(options), calls_(std::move(calls)) {
    WEFT_CHECK(options.size > 0 && options.rank >= 0 && options.rank < options.size, "rank {} of {}", options.rank,
               options.size);
  }

  std::string_view backend_name() const override { return "the fake"; }
  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) override {
    const auto place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return std::make_unique<FakeGroup>(*this, name, ranks, place);
  }

  /// Whether this is the operation that fails.
  bool add(FakeCall call) {
    calls_->push_back(std::move(call));
    return static_cast<int64_t>(calls_->size()) == options_.fail_at;
  }
  int64_t failing_rank() const { return options_.failing_rank >= 0 ? options_.failing_rank : (rank() + 1) % size(); }

 private:
  FakeOptions options_;
  std::shared_ptr<std::vector<FakeCall>> calls_;
};

std::unique_ptr<WorkState> FakeGroup::start(const Operation& operation, const OperationNote& note) {
  const auto size = static_cast<int64_t>(ranks_.size());
  FakeCall call{.group = name_,
                .ranks = ranks_,
                .what = note.what,
                .bytes = traffic_of(operation, rank_, size),
                .sent = sent_by_receiver(operation, rank_, size)};
  for (SentBytes& sent : call.sent) sent.to_rank = ranks_[static_cast<size_t>(sent.to_rank)];
  if (world_.add(std::move(call))) {
    const int64_t dead = world_.failing_rank();
    return std::make_unique<FakeWork>(
        RankFailure(fmt::format("rank {} failed, as the fake was told; rank {} waited for it in {}", dead,
                                world_.rank(), text(note)),
                    dead));
  }
  pretend(operation, rank_, size);
  return std::make_unique<FakeWork>();
}

}  // namespace

FakeWorld::FakeWorld(const FakeOptions& options)
    : calls_(std::make_shared<std::vector<FakeCall>>()), world_(std::make_shared<FakeRank>(options, calls_)) {}

Traffic FakeWorld::total_bytes() const {
  Traffic total;
  for (const FakeCall& call : *calls_) total += call.bytes;
  return total;
}

}  // namespace weft
