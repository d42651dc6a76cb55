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

void MpiPending::add(const MpiRequests& started, size_t& num_left) {
  requests_.insert(requests_.end(), started.begin(), started.end());
  owners_.insert(owners_.end(), started.size(), &num_left);
  num_left += started.size();
}

MPI_Request* MpiPending::add(size_t& num_left) {
  owners_.push_back(&num_left);
  ++num_left;
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

bool MpiPending::test() {
  if (requests_.empty()) return false;
  complete_.resize(requests_.size());
  int num_complete = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &num_complete, complete_.data(),
                         MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (num_complete == MPI_UNDEFINED || num_complete == 0) return false;
  for (int i = 0; i < num_complete; ++i) --*owners_[static_cast<size_t>(complete_[static_cast<size_t>(i)])];
  // MPI has set what is complete to null.
  size_t num_kept = 0;
  for (size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[num_kept] = requests_[i];
    owners_[num_kept++] = owners_[i];
  }
  requests_.resize(num_kept);
  owners_.resize(num_kept);
  return true;
}

void MpiPending::clear() {
  requests_.clear();
  owners_.clear();
}

bool MpiStages::advance(RunningChain& chain, MpiPending& pending) {
  bool moved = false;
  MpiRequests started;
  while (chain.num_pending == 0 && chain.next < chain.steps.size() && !disagreement()) {
    started.clear();
    chain.steps[chain.next++](started);
    pending.add(started, chain.num_pending);
    moved = true;
  }
  return moved;
}

bool MpiStages::advance(MpiPending& pending, bool is_awaited) {
  const size_t most_running = is_awaited ? kMostRunning : kMostInBackground;
  bool moved = false;
  while (!is_over()) {
    while (!waiting_.empty() && running_.size() < most_running) {
      running_.push_back({.steps = std::move(waiting_.back())});
      waiting_.pop_back();
    }
    for (auto chain = running_.begin(); chain != running_.end();) {
      moved |= advance(*chain, pending);
      chain = chain->is_over() ? running_.erase(chain) : std::next(chain);
    }
    if (!waiting_.empty() && running_.size() < most_running) continue;
    if (!running_.empty() || disagreement()) return moved;
    if (next_stage_ == stages_.size()) {
      set_done();
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

void MpiEngine::start(std::shared_ptr<MpiOperation> operation, std::unique_lock<std::mutex> lock) {
  if (is_halted_) return;
  try {
    operation->advance(pending_, true);
  } catch (const std::exception& error) {
    fail(error);
  }
  if (operation->is_over()) return;
  operations_.push_back(std::move(operation));
  ++num_operations_;
  lock.unlock();
  if (is_idle_) {
    { const std::lock_guard idle_lock(idle_mutex_); }
    wake_.notify_all();
  }
}

Awaited::Progress MpiEngine::poll(const MpiOperation* operation) {
  const std::lock_guard lock(mutex_);
  Awaited::Progress progress;
  try {
    progress.has_moved = !is_halted_ && advance_all(num_waiters_ > 0);
  } catch (const std::exception& error) {
    fail(error);
  }
  progress.is_over = operation != nullptr && operation->is_over();
  return progress;
}

void MpiEngine::fail(const std::exception& error) {
  error_ = error.what();
  is_halted_ = true;
}

std::optional<std::string> MpiEngine::error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool MpiEngine::advance_all(bool is_awaited) {
  bool moved = pending_.test();
  size_t num_kept = 0;
  for (size_t i = 0; i < operations_.size(); ++i) {
    moved |= operations_[i]->advance(pending_, is_awaited);
    if (operations_[i]->is_over()) {
      operations_[i].reset();
      --num_operations_;
    } else {
      if (num_kept != i) operations_[num_kept] = std::move(operations_[i]);
      ++num_kept;
    }
  }
  operations_.resize(num_kept);
  return moved;
}

void MpiEngine::halt() {
  const std::lock_guard lock(mutex_);
  is_halted_ = true;
  operations_.clear();
  pending_.clear();
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
