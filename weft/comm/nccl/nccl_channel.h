#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/nccl/nccl_library.h"
#include "weft/comm/process/process_rank.h"

namespace weft {

/// One operation on its way through NCCL.
class NcclTask {
 public:
  /// Events of the caller's streams that come first.
  std::vector<std::unique_ptr<CudaEvent>> before;
  /// Whether it may begin; asked again and again. None: at once.
  std::function<bool()> may_begin;
  /// Puts it on the stream.
  std::function<void(NcclComm, CudaStreamHandle)> launch;

  enum class State : uint8_t { kQueued, kLaunched, kFailed };
  State state() const { return state_; }
  /// Why it failed.
  const std::string& complaint() const { return complaint_; }
  /// When it was launched: whether the GPU is done with it.
  bool is_done() const { return done_->is_done(); }

 private:
  friend class NcclChannel;
  void fail(std::string complaint) {
    complaint_ = std::move(complaint);
    state_ = State::kFailed;
  }

  std::unique_ptr<CudaEvent> done_;
  std::string complaint_;
  std::atomic<State> state_{State::kQueued};
};

/// A communicator of NCCL with a stream and a thread of its own, which does one task after the other. NCCL's calls may
/// wait for other ranks, when they make a communicator or first use a connection; the thread waits then, and nobody
/// else does.
class NcclChannel {
 public:
  struct Description {
    const NcclLibrary* nccl = nullptr;
    std::shared_ptr<CudaDevice> device;
    Watch* watch = nullptr;  ///< by which rank 0 gives the others the communicator's id
    uint64_t key = 0;        ///< the same on all of its ranks, and that of no other
    int rank = 0;
    int size = 1;
  };

  static std::shared_ptr<NcclChannel> start(Description description);
  NcclChannel(const NcclChannel&) = delete;
  NcclChannel& operator=(const NcclChannel&) = delete;

  void push(std::shared_ptr<NcclTask> task);
  /// What NCCL found out by itself, like a peer that is gone.
  std::optional<std::string> async_error();
  /// Ends it once its tasks are done.
  void close_soon();
  void ask_to_end() noexcept;
  /// Ends what is under way on the GPU and then the thread; gives up when that takes until then.
  void break_off(std::chrono::steady_clock::time_point until) noexcept;
  /// Whether the thread ends before then.
  bool ends_until(std::chrono::steady_clock::time_point until);

 private:
  explicit NcclChannel(Description description) : what_(std::move(description)), stream_(what_.device) {}
  void run();
  void connect();
  void launch(NcclTask& task);
  /// Whether it came to be before everything was ended.
  bool wait_for(const std::function<bool()>& is_so) const;

  Description what_;
  CudaStream stream_;

  std::mutex calls_;  ///< of NCCL on this communicator
  NcclComm comm_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<NcclTask>> tasks_;
  bool is_closing_ = false;
  bool has_ended_ = false;
  std::atomic<bool> is_aborted_{false};
};

}  // namespace weft
