#include "weft/comm/cuda/own_copies.h"

#include <cstring>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/done_work.h"
#include "weft/comm/failure.h"

namespace weft {
namespace {

/// Copies on the output's stream, after what the input's stream has now; what comes on that later waits for the copy.
void copy_on_gpu(const std::shared_ptr<CudaDevice>& device, const ConstBuffer& in, const Buffer& out) {
  const OnCudaDevice on(*device);
  const bool has_two = in.stream != out.stream;
  if (has_two) CudaEvent(device, in.stream).hold(out.stream);
  device->check(device->driver().cuMemcpyDtoDAsync_v2(reinterpret_cast<CudaAddress>(out.data),
                                                      reinterpret_cast<CudaAddress>(in.data),
                                                      static_cast<size_t>(in.num_bytes()), out.stream),
                "cuMemcpyDtoDAsync");
  if (has_two) CudaEvent(device, out.stream).hold(in.stream);
}

}  // namespace

struct OwnCopies::Message {
  Operation operation;
  enum class State : uint8_t { kWaiting, kDone, kRefused, kAbandoned } state = State::kWaiting;
  std::string disagreement;
};

class OwnCopies::MessageWork : public WorkState {
 public:
  MessageWork(std::shared_ptr<OwnCopies> owner, std::shared_ptr<Message> message)
      : owner_(std::move(owner)), message_(std::move(message)) {}

  bool poll() override {
    const std::lock_guard lock(owner_->mutex_);
    if (message_->state == Message::State::kRefused) throw RanksDisagree(message_->disagreement);
    return message_->state == Message::State::kDone;
  }
  void wait() override {
    // Only another thread of this rank can bring the other side, so there is nothing to wait for but that.
    const auto until = std::chrono::steady_clock::now() + owner_->timeout_;
    while (!poll()) {
      if (std::chrono::steady_clock::now() > until)
        throw CommMisuse("a message of a rank to itself has no other side, expected a send for every recv");
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  void abandon() noexcept override {
    const std::lock_guard lock(owner_->mutex_);
    if (message_->state != Message::State::kWaiting) return;
    message_->state = Message::State::kAbandoned;
    std::erase(owner_->sends_, message_);
    std::erase(owner_->recvs_, message_);
  }

 private:
  std::shared_ptr<OwnCopies> owner_;
  std::shared_ptr<Message> message_;
};

void OwnCopies::copy(const ConstBuffer& in, const Buffer& out) {
  if (in.num_bytes() == 0 || in.data == out.data) return;
  if (in.device.kind == DeviceKind::kCpu) {
    std::memcpy(out.data, in.data, static_cast<size_t>(in.num_bytes()));
    return;
  }
  std::shared_ptr<CudaDevice>& device = devices_[in.device.index];
  if (!device) {
    auto opened = CudaDevice::open(in.device.index);
    if (!opened) throw std::runtime_error(opened.error().message());
    device = *opened;
  }
  copy_on_gpu(device, in, out);
}

std::unique_ptr<WorkState> OwnCopies::start(const Operation& operation) {
  if (!is_collective(operation.kind)) return start_message(operation);
  const std::lock_guard lock(mutex_);
  if (operation.kind != OperationKind::kBarrier) copy(operation.in, operation.out);
  return std::make_unique<DoneWork>();
}

std::unique_ptr<WorkState> OwnCopies::start_message(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  const bool sends = operation.kind == OperationKind::kSend;
  auto own = std::make_shared<Message>(Message{.operation = operation, .disagreement = {}});
  auto& others = sends ? recvs_ : sends_;
  if (others.empty()) {
    (sends ? sends_ : recvs_).push_back(own);
    return std::make_unique<MessageWork>(shared_from_this(), std::move(own));
  }
  const std::shared_ptr<Message> other = others.front();
  others.pop_front();
  const ConstBuffer& in = sends ? operation.in : other->operation.in;
  const Buffer& out = sends ? other->operation.out : operation.out;
  if (in.count != out.count || in.type != out.type || in.device != out.device) {
    own->state = other->state = Message::State::kRefused;
    own->disagreement = other->disagreement =
        fmt::format("a rank sends itself {}, and expects {}", text(in), text(out));
  } else {
    copy(in, out);
    own->state = other->state = Message::State::kDone;
  }
  return std::make_unique<MessageWork>(shared_from_this(), std::move(own));
}

}  // namespace weft
