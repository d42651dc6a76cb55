#include "weft/engine/worker_threads.h"

#include <exception>

namespace weft {

WorkerThreads::WorkerThreads(int64_t num_threads) {
  for (int64_t i = 1; i < num_threads; ++i) threads_.emplace_back([this] { run_thread(); });
}

WorkerThreads::~WorkerThreads() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerThreads::take_part(Job& job, std::unique_lock<std::mutex>& lock) {
  ++job.running;
  while (job.next < job.count) {
    const int64_t index = job.next++;
    if (job.next == job.count) jobs_.remove(&job);
    lock.unlock();
    std::exception_ptr thrown;
    try {
      (*job.work)(index);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    if (!thrown) continue;
    if (!job.thrown) job.thrown = thrown;
    if (job.next < job.count) jobs_.remove(&job);
    job.next = job.count;
  }
  if (--job.running == 0) is_done_.notify_all();
}

void WorkerThreads::run_thread() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
    if (is_ending_) return;
    take_part(*jobs_.front(), lock);
  }
}

void WorkerThreads::for_each(int64_t count, const std::function<void(int64_t)>& work) {
  if (count == 0) return;
  Job job{.count = count, .work = &work};
  std::unique_lock lock(mutex_);
  jobs_.push_back(&job);
  if (count > 1) has_work_.notify_all();
  take_part(job, lock);
  is_done_.wait(lock, [&job] { return job.running == 0; });
  if (job.thrown) std::rethrow_exception(job.thrown);
}

}  // namespace weft
