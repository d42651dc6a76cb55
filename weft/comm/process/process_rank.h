#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/process/watch.h"
#include "weft/comm/run_ranks.h"

namespace weft {

/// Where the ranks' records are, the same on all ranks of a host, and what tells this run from others there.
struct RunRecords {
  std::filesystem::path folder;
  uint64_t run = 0;

  /// The given folder, or one that no run before has used.
  static RunRecords in(const std::filesystem::path& given, uint64_t run);
};

/// What a rank waits for: an operation of these ranks. `key_at` says under which key the rank at a place among them
/// counts what is number `number` here.
struct Awaited {
  OperationNote note;
  const std::vector<int64_t>& ranks;  ///< none: the end of the run, which takes as long as it takes
  std::function<uint64_t(size_t)> key_at;
  uint64_t number = 0;
  int64_t peer = -1;  ///< of a message: the place of the other rank, and no third one has a part in it

  bool has_part(size_t place) const { return peer < 0 || place == static_cast<size_t>(peer); }

  struct Progress {
    bool has_moved = false;
    bool is_over = false;
  };
  /// Moves it on. May throw.
  std::function<Progress()> poll;
};

/// One process's end of a world of processes: what they have in common whatever moves their data. Failures are told
/// here, once a run, and nobody waits for the dead.
class ProcessRank : public WorldBackend {
 public:
  ProcessRank(int64_t rank, int64_t size, const CommOptions& options, RunRecords records, bool has_core_per_rank)
      : WorldBackend(rank, size, options), records_(std::move(records)), has_core_per_rank_(has_core_per_rank) {}

  Watch& watch() { return *watch_; }
  const RunRecords& records() const { return records_; }

  /// A number for a new group, the same on all of its ranks and that of no other group.
  uint64_t new_group_id(const std::string& name, const std::vector<int64_t>& ranks);
  /// Counts an operation that this process starts, under a key that its peers compute alike; returns its number.
  uint64_t count(uint64_t key) { return ++counter(key); }
  /// Where operations of a key are counted, for those who count often. Stays where it is.
  std::atomic<uint64_t>& counter(uint64_t key);

  /// Waits, with growing pauses. Throws RankFailure when a rank that is needed is dead, has left without coming, or is
  /// late.
  void wait(const Awaited& awaited);
  /// Throws RankFailure if there is reason to, as while waiting; for those who only look.
  void look_for_failures(const Awaited& awaited);
  [[noreturn]] void give_up(const RankNews& news, const OperationNote& note);

  /// Nothing is moved any more, so that no memory of the operations that are left is touched.
  virtual void halt() noexcept { is_halted_ = true; }
  virtual bool is_halted() { return is_halted_; }
  /// Why it is, if this process's own backend complained.
  virtual std::optional<std::string> complaint() { return {}; }

  /// Waits for everyone to come here, so that nobody's messages are lost.
  void leave();
  /// Whether this process is the one on its host that tells the user.
  bool claim_message();
  /// Which of this host's other ranks wait, and in what. Gives them so long to come to it.
  std::string who_waits(std::chrono::milliseconds patience = std::chrono::milliseconds(200)) const;
  /// What is said of a failure: who, what it did last, and who waited.
  std::string describe(const RankNews& news, const std::string& waiting) const;

 protected:
  /// Called once, by the backend's constructor.
  void start_watch(std::vector<RankConnection> connections, const std::function<void(const std::string&)>& report);
  /// Ends when everyone has come to it.
  virtual void meet_at_end(const OperationNote& note);

 private:
  RunRecords records_;
  bool has_core_per_rank_;
  std::atomic<bool> is_halted_{false};
  std::unique_ptr<Watch> watch_;
  std::mutex mutex_;
  std::map<uint64_t, std::atomic<uint64_t>> counts_;
  std::map<std::string, uint64_t> num_groups_;  ///< made under each name and ranks
};

/// The key under which the rank at `place` of a group counts its part in an operation that the rank at `own` takes part
/// in: collectives count together, messages by pair and direction.
uint64_t operation_key(uint64_t group_id, OperationKind kind, int64_t peer, size_t own, size_t place);

/// Runs the body as this rank and leaves. Throws a RankFailure, told to the user and to everyone else, when anything
/// fails.
void run_process_rank(const std::shared_ptr<ProcessRank>& rank, const RunOptions& options,
                      const std::function<void(World&)>& body);

}  // namespace weft
