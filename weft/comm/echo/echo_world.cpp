#include "weft/comm/echo/echo_world.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/done_work.h"

namespace weft {
namespace {

/// Waits until the ranks that it stands for are there, too.
class MetWork : public DoneWork {
 public:
  explicit MetWork(const std::function<void()>& meet) : meet_(meet) {}
  void wait() override { meet_(); }

 private:
  const std::function<void()>& meet_;
};

/// Moves memory of the host at once, of a GPU on the caller's stream.
class EchoMemory {
 public:
  explicit EchoMemory(std::shared_ptr<EchoWorld::Counts> counts) : counts_(std::move(counts)) {}

  void copy(const ConstBuffer& from, const Buffer& to) {
    const auto bytes = static_cast<size_t>(from.num_bytes());
    if (bytes == 0 || from.data == to.data) return;
    if (to.device.kind == DeviceKind::kCpu) {
      on_host([&] { std::memmove(to.data, from.data, bytes); });
      return;
    }
    CudaDevice& device = gpu(to.device.index);
    const OnCudaDevice on(device);
    device.check(device.driver().cuMemcpyDtoDAsync_v2(reinterpret_cast<CudaAddress>(to.data),
                                                      reinterpret_cast<CudaAddress>(from.data), bytes, to.stream),
                 "cuMemcpyDtoDAsync");
    counts_->gpu_bytes += from.num_bytes();
  }
  void clear(const Buffer& to) {
    const auto bytes = static_cast<size_t>(to.num_bytes());
    if (bytes == 0) return;
    if (to.device.kind == DeviceKind::kCpu) {
      on_host([&] { std::memset(to.data, 0, bytes); });
      return;
    }
    CudaDevice& device = gpu(to.device.index);
    const OnCudaDevice on(device);
    device.check(device.driver().cuMemsetD8Async(reinterpret_cast<CudaAddress>(to.data), 0, bytes, to.stream),
                 "cuMemsetD8Async");
    counts_->gpu_bytes += to.num_bytes() / 2;
  }

  /// All of a buffer from one that may be shorter or longer, over and over.
  void fill(const ConstBuffer& from, const Buffer& to) {
    if (from.count == 0) return clear(to);
    for (int64_t begin = 0; begin < to.count; begin += from.count) {
      const int64_t size = std::min(from.count, to.count - begin);
      copy(from.part(0, size), to.part(begin, size));
    }
  }

 private:
  template <typename Move>
  void on_host(const Move& move) {
    const auto start = std::chrono::steady_clock::now();
    move();
    counts_->host_ns += (std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1);
  }

  CudaDevice& gpu(int index) {
    const std::lock_guard lock(guard_);
    std::shared_ptr<CudaDevice>& device = gpus_[index];
    if (!device) {
      auto opened = CudaDevice::open(index);
      if (!opened) throw std::runtime_error(opened.error().message());
      device = *opened;
    }
    return *device;
  }

  std::shared_ptr<EchoWorld::Counts> counts_;
  std::mutex guard_;
  std::map<int, std::shared_ptr<CudaDevice>> gpus_;
};

void echo(const Operation& op, int64_t rank, int64_t size, EchoMemory& memory) {
  switch (op.kind) {
    case OperationKind::kAllReduce:
      return memory.copy(op.in, op.out);
    case OperationKind::kReduceScatter: {
      const PartRange own = part_of(op.in.count, op.in_counts, rank, size);
      return memory.copy(op.in.part(own.begin, own.size), op.out);
    }
    case OperationKind::kAllGather:
      for (const PartRange& part : parts_of(op.out.count, op.out_counts, size))
        memory.fill(op.in, op.out.part(part.begin, part.size));
      return;
    case OperationKind::kAllToAll: {
      const std::vector<PartRange> sent = parts_of(op.in.count, op.in_counts, size);
      const std::vector<PartRange> come = parts_of(op.out.count, op.out_counts, size);
      for (size_t peer = 0; peer < come.size(); ++peer)
        memory.fill(op.in.part(sent[peer].begin, sent[peer].size), op.out.part(come[peer].begin, come[peer].size));
      return;
    }
    case OperationKind::kRecv:
      return memory.clear(op.out);
    case OperationKind::kBroadcast:
    case OperationKind::kSend:
    case OperationKind::kBarrier:
      return;
  }
}

class EchoGroup : public GroupBackend {
 public:
  EchoGroup(int64_t rank, int64_t size, std::shared_ptr<EchoMemory> memory, const std::function<void()>& meet)
      : rank_(rank), size_(size), memory_(std::move(memory)), meet_(meet) {}

  std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote&) override {
    echo(operation, rank_, size_, *memory_);
    if (size_ > 1 && meet_) return std::make_unique<MetWork>(meet_);
    return std::make_unique<DoneWork>();
  }
  std::optional<std::string> refusal_of(Device) const override { return {}; }

 private:
  int64_t rank_;
  int64_t size_;
  std::shared_ptr<EchoMemory> memory_;
  const std::function<void()>& meet_;  ///< the world's, which outlives its groups
};

class EchoRank : public WorldBackend {
 public:
  EchoRank(int64_t rank, int64_t size, std::shared_ptr<EchoWorld::Counts> counts, std::function<void()> meet)
      : WorldBackend(rank, size, {}), memory_(std::make_shared<EchoMemory>(std::move(counts))), meet_(std::move(meet)) {
    WEFT_CHECK(size > 0 && rank >= 0 && rank < size, "rank {} of {}", rank, size);
  }

  std::string_view backend_name() const override { return "the echo"; }
  std::unique_ptr<GroupBackend> make_group(const std::string&, const std::vector<int64_t>& ranks) override {
    const int64_t place = std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin();
    return std::make_unique<EchoGroup>(place, std::ssize(ranks), memory_, meet_);
  }

 private:
  std::shared_ptr<EchoMemory> memory_;
  std::function<void()> meet_;
};

}  // namespace

EchoWorld::EchoWorld(int64_t rank, int64_t size, std::function<void()> meet)
    : counts_(std::make_shared<Counts>()),
      world_(std::make_unique<World>(std::make_shared<EchoRank>(rank, size, counts_, std::move(meet)))) {}

EchoCopies EchoWorld::copies() const {
  return {.host_ms = static_cast<double>(counts_->host_ns) * 1e-6, .gpu_bytes = counts_->gpu_bytes};
}

}  // namespace weft
