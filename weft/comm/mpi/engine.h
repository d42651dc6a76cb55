#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weft/comm/process/process_rank.h"

namespace weft {

using MpiRequests = std::vector<MPI_Request>;

/// All requests under way. They are tested together: every test lets MPI work, and it may give up this process's turn
/// when there is nothing to do, so one for every request or operation would be waiting for nothing.
class MpiPending {
 public:
  /// Counts `num_left` up, and down as requests are complete. It stays where it is until then.
  void add(const MpiRequests& started, size_t& num_left);
  /// One that is started now, by whoever is given its place.
  MPI_Request* add(size_t& num_left);
  /// Whether any was complete.
  bool test();
  /// Forgets them: nobody calls MPI any more.
  void clear();

 private:
  MpiRequests requests_;
  std::vector<size_t*> owners_;  ///< of each request
  std::vector<int> complete_;
};

/// One operation of this process under way. All is under the engine's lock, but for what holds when it is over.
class MpiOperation {
 public:
  virtual ~MpiOperation() = default;
  /// Goes on as far as that is possible before requests are complete. Returns whether anything moved.
  virtual bool advance(MpiPending& pending, bool is_awaited) = 0;
  bool is_over() const { return is_done_ || disagreement_.has_value(); }
  const std::optional<std::string>& disagreement() const { return disagreement_; }
  /// Ends it: the ranks disagree.
  void refuse(std::string disagreement) { disagreement_ = std::move(disagreement); }

 protected:
  void set_done() { is_done_ = true; }

 private:
  bool is_done_ = false;
  std::optional<std::string> disagreement_;
};

/// Things that are done one after the other: each step may start requests, and the next begins when they are complete.
using MpiChain = std::vector<std::function<void(MpiRequests&)>>;

/// Stages one after the other, each of chains side by side.
class MpiStages : public MpiOperation {
 public:
  /// Adds a stage. A stage is asked for its chains when it begins, so that it can depend on those before.
  void add_stage(std::function<std::vector<MpiChain>()> make_chains) {
    stages_.push_back({{}, std::move(make_chains)});
  }
  /// What comes after waits for something that is not MPI's. It is asked again and again, so it must be quick.
  void add_gate(std::function<bool()> is_open) {
    stages_.push_back({std::move(is_open), [] { return std::vector<MpiChain>(); }});
  }
  void add_chain(MpiChain chain) {
    add_stage([chain = std::move(chain)]() mutable { return std::vector<MpiChain>{std::move(chain)}; });
  }

  bool advance(MpiPending& pending, bool is_awaited) override;

 private:
  struct RunningChain {
    MpiChain steps;
    size_t next = 0;
    size_t num_pending = 0;

    bool is_over() const { return num_pending == 0 && next == steps.size(); }
  };

  bool advance(RunningChain& chain, MpiPending& pending);

  struct Stage {
    std::function<bool()> gate;
    std::function<std::vector<MpiChain>()> make_chains;
  };

  std::vector<Stage> stages_;
  size_t next_stage_ = 0;
  std::vector<MpiChain> waiting_;  ///< chains of this stage that have not begun, last first
  std::list<RunningChain> running_;
};

/// Moves operations on. Every call of MPI happens under its lock. Whoever waits moves everything on; a thread of its
/// own does while nobody waits, so that operations go on during computation.
class MpiEngine {
 public:
  MpiEngine();
  ~MpiEngine();
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// Begins an operation. Whoever has made it under the lock hands that over.
  void start(std::shared_ptr<MpiOperation> operation, std::unique_lock<std::mutex> lock);
  void start(std::shared_ptr<MpiOperation> operation) { start(std::move(operation), lock()); }
  /// Moves everything on once; over is the operation that was asked about.
  Awaited::Progress poll(const MpiOperation* operation = nullptr);
  /// What MPI complained of, if it did; nothing is moved on then.
  std::optional<std::string> error();
  /// Nothing is moved on any more, so that no memory of the operations that are left is touched.
  void halt();
  bool is_halted() const { return is_halted_; }

  /// While one exists, somebody waits and polls.
  class Waiter {
   public:
    explicit Waiter(MpiEngine& engine) : engine_(engine) { ++engine_.num_waiters_; }
    ~Waiter() { --engine_.num_waiters_; }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    MpiEngine& engine_;
  };

 private:
  void move_on_in_background();
  bool advance_all(bool is_awaited);
  /// MPI complained. Operations stay where they are, since it may know their memory, and those who wait are told.
  void fail(const std::exception& error);

  std::mutex mutex_;
  std::vector<std::shared_ptr<MpiOperation>> operations_;
  MpiPending pending_;
  std::atomic<size_t> num_operations_{0};
  std::atomic<bool> is_halted_{false};
  std::optional<std::string> error_;
  std::atomic<int> num_waiters_{0};

  std::mutex idle_mutex_;
  std::condition_variable wake_;
  std::atomic<bool> is_idle_{false};  ///< the thread sleeps until it is woken
  bool is_ending_ = false;
  std::thread thread_;
};

/// Throws a std::runtime_error that says what MPI says, unless all is well.
void check_mpi(int code, const char* what);

}  // namespace weft
