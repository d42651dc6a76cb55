#include "weft/comm/nccl/nccl_channel.h"

#include <algorithm>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <thread>

namespace weft {
namespace {

constexpr char kAborted[] = "it was ended before it was done";

}  // namespace

std::shared_ptr<NcclChannel> NcclChannel::start(Description description) {
  std::shared_ptr<NcclChannel> channel(new NcclChannel(std::move(description)));
  // A thread that NCCL does not let go is left behind, and keeps what it needs.
  std::thread([channel] {
    pthread_setname_np(pthread_self(), "weft nccl");
    channel->run();
  }).detach();
  return channel;
}

void NcclChannel::push(std::shared_ptr<NcclTask> task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_aborted_ || has_ended_) {
      task->fail(kAborted);
      return;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_all();
}

std::optional<std::string> NcclChannel::async_error() {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return {};
  NcclStatus status = 0;
  const NcclStatus asked = what_.nccl->ncclCommGetAsyncError(comm_, &status);
  if (asked != 0) status = asked;
  if (status == 0 || status == kNcclInProgress) return {};
  return what_.nccl->text_of(status);
}

void NcclChannel::close_soon() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
}

void NcclChannel::ask_to_end() noexcept {
  is_aborted_ = true;
  // Whoever is between looking and sleeping holds this; afterwards the notification reaches them.
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

void NcclChannel::break_off(std::chrono::steady_clock::time_point until) noexcept {
  ask_to_end();
  {
    // A thread that is inside NCCL cannot be helped out: nothing of its operation is on the GPU yet.
    std::unique_lock lock(calls_, std::try_to_lock);
    while (!lock.owns_lock() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (lock.try_lock()) break;
    }
    if (lock.owns_lock() && comm_ != nullptr) what_.nccl->ncclCommAbort(std::exchange(comm_, nullptr));
  }
  ends_until(until);
}

bool NcclChannel::ends_until(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [&] { return has_ended_; });
}

bool NcclChannel::wait_for(const std::function<bool()>& is_so) const {
  for (int64_t num_pauses = 0; !is_so(); ++num_pauses) {
    if (is_aborted_) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(std::min<int64_t>(20 + num_pauses, 1000)));
  }
  return !is_aborted_;
}

void NcclChannel::connect() {
  if (comm_ != nullptr) return;
  NcclUniqueId id{};
  if (what_.rank == 0) {
    what_.nccl->check(what_.nccl->ncclGetUniqueId(&id), "ncclGetUniqueId");
    if (what_.size > 1) what_.watch->post(what_.key, {id.internal, sizeof(id.internal)});
  } else {
    std::optional<std::string> posted;
    if (!wait_for([&] { return (posted = what_.watch->posted(what_.key)).has_value(); }))
      throw std::runtime_error(kAborted);
    std::memcpy(id.internal, posted->data(), std::min(posted->size(), sizeof(id.internal)));
  }
  const std::unique_lock lock(calls_);
  NcclComm comm = nullptr;
  what_.nccl->check(what_.nccl->ncclCommInitRank(&comm, what_.size, id, what_.rank), "ncclCommInitRank");
  comm_ = comm;
}

void NcclChannel::launch(NcclTask& task) {
  if (task.may_begin && !wait_for(task.may_begin)) throw std::runtime_error(kAborted);
  for (const auto& event : task.before) event->hold(stream_.handle());
  const std::unique_lock lock(calls_);
  if (is_aborted_) throw std::runtime_error(kAborted);
  task.launch(comm_, stream_.handle());
  task.done_ = std::make_unique<CudaEvent>(what_.device, stream_.handle());
  task.state_ = NcclTask::State::kLaunched;
}

void NcclChannel::run() {
  for (;;) {
    std::shared_ptr<NcclTask> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_aborted_ || is_closing_ || !tasks_.empty(); });
      if (is_aborted_ || tasks_.empty()) break;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    try {
      const OnCudaDevice on(*what_.device);
      connect();
      launch(*task);
    } catch (const std::exception& error) {
      task->fail(error.what());
    }
  }
  std::deque<std::shared_ptr<NcclTask>> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(tasks_);
  }
  for (const auto& task : left) task->fail(kAborted);
  if (!is_aborted_) {
    const std::unique_lock lock(calls_);
    if (comm_ != nullptr) {
      try {
        const OnCudaDevice on(*what_.device);
        what_.device->driver().cuStreamSynchronize(stream_.handle());
        what_.nccl->ncclCommDestroy(std::exchange(comm_, nullptr));
      } catch (const std::exception&) {
        // A GPU that cannot be used any more: there is nothing left to end.
      }
    }
  }
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  changed_.notify_all();
}

}  // namespace weft
