#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

/// Threads that prepare samples. Who asks for work takes part in it, so that one thread is the asking one alone.
class WorkerThreads {
 public:
  explicit WorkerThreads(int64_t num_threads);
  ~WorkerThreads();
  WorkerThreads(const WorkerThreads&) = delete;
  WorkerThreads& operator=(const WorkerThreads&) = delete;

  int64_t num_threads() const { return static_cast<int64_t>(threads_.size()) + 1; }

  /// Calls `work` for 0 to count - 1, in any order and several at once, and returns when all are done. Of what is
  /// thrown the first is thrown on; the rest of the work is then left. Several threads may ask.
  void for_each(int64_t count, const std::function<void(int64_t)>& work);

 private:
  struct Job {
    int64_t count = 0;
    const std::function<void(int64_t)>* work = nullptr;
    int64_t next = 0;
    int64_t running = 0;
    std::exception_ptr thrown;
  };

  /// Takes part in a job until nothing of it is left to begin. The lock is held when it is called and returns.
  void take_part(Job& job, std::unique_lock<std::mutex>& lock);
  void run_thread();

  std::mutex mutex_;
  std::condition_variable has_work_, is_done_;
  std::list<Job*> jobs_;  ///< with work that nobody has begun
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace weft
