#include "weft/comm/mpi/engine.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// Chains of one operation that are under way at a time. While someone waits: one is reduced while another's bytes
/// travel. In the background: as many as can be, since the thread gets a turn only now and then.
constexpr size_t kMostRunning = 3, kMostInBackground = 32;

/// Asks for short turns, which come soon after waking up, instead of long ones after a computing thread's: a thread
/// that polls needs no more. Linux takes this as a wish since 6.12; where it does not, nothing is lost.
void ask_for_short_turns() {
  struct {
    uint32_t size = 48;
    uint32_t policy = 0;
    uint64_t flags = 0;
    int32_t nice = getpriority(PRIO_PROCESS, 0);
    uint32_t priority = 0;
    uint64_t runtime_ns = 100'000;
    uint64_t deadline_ns = 0;
    uint64_t period_ns = 0;
  } attributes;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(fmt::format("{}: {}", what, std::string_view(text, static_cast<size_t>(length))));
}

bool MpiOperation::advance(RunningChain& chain) {
  bool moved = false;
  for (;;) {
    if (!chain.requests.empty()) {
      int is_complete = 0;
      check_mpi(MPI_Testall(static_cast<int>(chain.requests.size()), chain.requests.data(), &is_complete,
                            MPI_STATUSES_IGNORE),
                "MPI_Testall");
      if (is_complete == 0) return moved;
      chain.requests.clear();
      moved = true;
    }
    if (chain.next == chain.steps.size() || disagreement_) return moved;
    chain.steps[chain.next++](chain.requests);
    moved = true;
  }
}

bool MpiOperation::advance(size_t most_running) {
  bool moved = false;
  while (!is_over()) {
    while (!waiting_.empty() && running_.size() < most_running) {
      running_.push_back({.steps = std::move(waiting_.back())});
      waiting_.pop_back();
    }
    for (auto chain = running_.begin(); chain != running_.end();) {
      moved |= advance(*chain);
      const bool is_over = chain->requests.empty() && chain->next == chain->steps.size();
      chain = is_over ? running_.erase(chain) : std::next(chain);
    }
    if (!waiting_.empty() && running_.size() < most_running) continue;
    if (!running_.empty() || disagreement_) return moved;
    if (next_stage_ == stages_.size()) {
      is_done_ = true;
      return true;
    }
    if (stages_[next_stage_].gate && !stages_[next_stage_].gate()) return moved;
    moved |= stages_[next_stage_].gate != nullptr;
    waiting_ = stages_[next_stage_++].make_chains();
    std::reverse(waiting_.begin(), waiting_.end());
  }
  return moved;
}

MpiEngine::MpiEngine() : thread_([this] { move_on_in_background(); }) {
  pthread_setname_np(thread_.native_handle(), "weft mpi");
}

MpiEngine::~MpiEngine() {
  {
    const std::lock_guard lock(idle_mutex_);
    is_ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void MpiEngine::start(const std::shared_ptr<MpiOperation>& operation) {
  {
    const std::lock_guard lock(mutex_);
    if (is_halted_) return;
    operation->advance(kMostRunning);
    if (operation->is_over()) return;
    operations_.push_back(operation);
    ++num_operations_;
  }
  if (is_idle_) {
    { const std::lock_guard lock(idle_mutex_); }
    wake_.notify_all();
  }
}

Awaited::Progress MpiEngine::poll(const MpiOperation* operation) {
  const std::lock_guard lock(mutex_);
  Awaited::Progress progress;
  try {
    progress.has_moved = !is_halted_ && advance_all(num_waiters_ > 0 ? kMostRunning : kMostInBackground);
  } catch (const std::exception& error) {
    error_ = error.what();
    is_halted_ = true;
  }
  progress.is_over = operation != nullptr && operation->is_over();
  return progress;
}

std::optional<std::string> MpiEngine::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool MpiEngine::advance_all(size_t most_running) {
  bool moved = false;
  for (auto operation = operations_.begin(); operation != operations_.end();) {
    moved |= (*operation)->advance(most_running);
    if ((*operation)->is_over()) {
      operation = operations_.erase(operation);
      --num_operations_;
    } else {
      ++operation;
    }
  }
  return moved;
}

void MpiEngine::halt() {
  const std::lock_guard lock(mutex_);
  is_halted_ = true;
  operations_.clear();
  num_operations_ = 0;
}

void MpiEngine::move_on_in_background() {
  // Pauses are a share of the time that nothing has moved: data that flows is fetched at once, and a rank that stays
  // away for long costs little. Looks a few thousand times a second while operations come and go, so that starting one
  // needs no wake-up, and sleeps until it is woken when none has been there for a while.
  constexpr auto kShortest = std::chrono::microseconds(20), kLongest = std::chrono::microseconds(1000);
  constexpr auto kLook = std::chrono::microseconds(250);
  constexpr auto kIdleAfter = std::chrono::milliseconds(20);
  ask_for_short_turns();
  auto last_busy = Clock::now(), last_moved = last_busy;
  for (;;) {
    const bool has_work = num_operations_ > 0;
    const bool is_mine = has_work && num_waiters_ == 0;
    const bool moved = is_mine && poll().has_moved;
    const auto now = Clock::now();
    if (has_work) last_busy = now;
    if (moved || !is_mine) last_moved = now;
    std::unique_lock lock(idle_mutex_);
    if (is_ending_) return;
    if (!has_work && now - last_busy > kIdleAfter) {
      is_idle_ = true;
      wake_.wait(lock, [&] { return is_ending_ || num_operations_ > 0; });
      is_idle_ = false;
    } else if (!moved) {
      const auto share = std::chrono::duration_cast<std::chrono::microseconds>(now - last_moved) / 4;
      wake_.wait_for(lock, is_mine ? std::clamp(share, kShortest, kLongest) : kLook);
    }
  }
}

}  // namespace weft
