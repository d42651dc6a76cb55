#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weft/comm/process/sockets.h"

namespace weft {

/// How a rank came to be to blame.
struct RankNews {
  int64_t rank = 0;
  std::string how;  ///< completes "rank 2 ..."
};

/// How many operations of each kind a rank has started, by a key that its peers compute alike.
using OperationCounts = std::map<uint64_t, uint64_t>;

/// A connection to another rank's process.
struct RankConnection {
  int64_t rank = 0;
  Descriptor socket;
};

/// A side channel by which processes learn how others end, whatever MPI or NCCL do: everyone has a connection to rank
/// 0, which passes the news on. The kernel closes the connection of a process that was killed, so that is news at once.
/// It carries small notices between ranks, too. One thread listens; it costs nothing while nothing happens.
class Watch {
 public:
  struct Options {
    /// From a failure until a process that has not ended by itself is ended.
    std::chrono::milliseconds grace{3000};
    /// Called then, from the watch's thread, with the failure.
    std::function<void(const RankNews&)> end_process;
  };

  /// Rank 0 has connections to all others, which have one to it.
  Watch(int64_t rank, std::vector<RankConnection> connections, Options options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool has_failed() const { return has_failed_; }
  /// The first failure that this process heard of.
  std::optional<RankNews> failure() const;
  /// This process cannot go on, for this reason: everyone hears of it.
  void announce(const RankNews& news);
  /// This process starts no more operations; these are all it has started.
  void leave(const OperationCounts& counts);
  int64_t num_left() const { return num_left_; }
  /// How many operations of a key a rank has started in all; nothing while it has not left.
  std::optional<uint64_t> started_by_left(int64_t rank, uint64_t key) const;
  /// Tells all ranks something under a key, which is used for nothing else.
  void post(uint64_t key, const std::string& notice);
  /// What some rank has posted under a key, if it has and the news has come.
  std::optional<std::string> posted(uint64_t key) const;
  /// Everyone has left: connections end without being missed.
  void say_goodbye();
  /// Nobody is ended any more: this process is on its way out.
  void stand_down();

 private:
  struct Connection : RankConnection {
    std::string received;
    bool said_goodbye = false;
  };

  void listen();
  void handle(Connection& connection);
  void hear(int64_t from, char kind, int64_t about, const std::string& text);
  /// To all connections but the one that the news came from.
  void pass_on(char kind, int64_t about, const std::string& text, int64_t except);
  void fail(const RankNews& news);
  std::optional<std::chrono::milliseconds> until_next_deadline();
  void meet_deadlines();

  int64_t rank_ = 0;
  Options options_;
  std::vector<Connection> connections_;
  bool ends_itself_ = false;  ///< the program had a handler for SIGTERM, which is still called
  Descriptor wake_;           ///< an event that ends the thread or makes it look again
  std::mutex write_mutex_;    ///< frames are written whole

  mutable std::mutex mutex_;
  std::optional<RankNews> failure_;
  std::map<int64_t, OperationCounts> left_;
  std::map<uint64_t, std::string> notices_;
  std::optional<std::chrono::steady_clock::time_point> asked_to_end_;  ///< by SIGTERM
  std::optional<std::chrono::steady_clock::time_point> end_at_;
  bool has_stood_down_ = false;
  bool is_ending_ = false;
  std::atomic<bool> has_failed_{false};
  std::atomic<int64_t> num_left_{0};
  std::thread thread_;
};

}  // namespace weft
