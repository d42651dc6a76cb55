#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/traffic.h"
#include "weft/comm/traffic_counter.h"
#include "weft/comm/work.h"

namespace weft {

/// One rank's end of a group in a backend. Operations that get here have no mistakes of their own.
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual std::unique_ptr<WorkState> start(const Operation& operation, const OperationNote& note) = 0;
  /// Nothing where it can move a device's memory, else what it can: completes "memory on cuda:0, expected ...".
  virtual std::optional<std::string> refusal_of(Device device) const = 0;
  /// Frees what the group holds, after the last operation has been waited for.
  virtual void close() {}
};

class WorldBackend;

/// Ranks that communicate, seen from one of them: `rank()` is its place among the group's `ranks()`, and every rank
/// that an operation names is such a place. A value; copies are the same group.
///
/// Every operation is started and returns a Work to wait for; `group.barrier().wait()` does both. All ranks start the
/// collectives of a group in the same order; different groups are independent of each other. The k-th send of a rank to
/// another meets the k-th recv there of it, and may complete only then. Buffers are the operation's until it was waited
/// for. Throws CommMisuse for a mistake on this rank; RankFailure and RanksDisagree come when starting or waiting.
class Group {
 public:
  Group(std::shared_ptr<WorldBackend> world, const std::string& name, const std::vector<int64_t>& ranks);

  int64_t rank() const { return state_->rank; }
  int64_t size() const { return std::ssize(state_->counter->ranks()); }
  const std::string& name() const { return state_->counter->name(); }
  /// The group's ranks as the world numbers them.
  std::span<const int64_t> ranks() const { return state_->counter->ranks(); }

  /// Input and output may be the same memory.
  Work all_reduce(const ConstBuffer& in, const Buffer& out, Reduction reduction);
  Work all_reduce(const Buffer& in_out, Reduction reduction) { return all_reduce(in_out, in_out, reduction); }
  /// The output is all inputs in rank order. With `counts`, rank r's input has counts[r] elements. The input may be
  /// this rank's part of the output.
  Work all_gather(const ConstBuffer& in, const Buffer& out, std::vector<int64_t> counts = {});
  /// The output is this rank's part of the reduced inputs. With `counts`, rank r's part has counts[r] elements. The
  /// output may be this rank's part of the input.
  Work reduce_scatter(const ConstBuffer& in, const Buffer& out, Reduction reduction, std::vector<int64_t> counts = {});
  /// Part r of the input goes to rank r, and part r of the output comes from it.
  Work all_to_all(const ConstBuffer& in, const Buffer& out) { return all_to_all(in, out, {}, {}); }
  Work all_to_all(const ConstBuffer& in, const Buffer& out, std::vector<int64_t> in_counts,
                  std::vector<int64_t> out_counts);
  Work broadcast(const Buffer& in_out, int64_t root);
  Work send(const ConstBuffer& in, int64_t to);
  Work recv(const Buffer& out, int64_t from);
  Work barrier();

  /// Bytes of all operations started so far, see traffic_of.
  Traffic traffic() const { return state_->counter->total(); }

  /// Ends the group's use on this rank; operations afterwards throw CommMisuse.
  void close();

 private:
  friend class UnlimitedWaits;
  struct State {
    std::shared_ptr<WorldBackend> world;
    int64_t rank = 0;
    std::unique_ptr<GroupBackend> backend;
    std::atomic<int64_t> num_operations{0};
    std::shared_ptr<TrafficCounter> counter;
    std::atomic<bool> is_closed{false};
  };

  Work start(const Operation& operation);
  [[noreturn]] void refuse(const Operation& operation, const std::string& mistake) const;

  std::shared_ptr<State> state_;
};

/// While it lives, this rank waits for others as long as it takes, in all groups of its world: for work in which a rank
/// may be busy with a disk for longer than the time-out. Ranks that die are noticed all the same. All ranks make one
/// around the same operations, the last of which brings them together.
class UnlimitedWaits {
 public:
  explicit UnlimitedWaits(const Group& group);
  ~UnlimitedWaits();
  UnlimitedWaits(const UnlimitedWaits&) = delete;
  UnlimitedWaits& operator=(const UnlimitedWaits&) = delete;

 private:
  std::shared_ptr<WorldBackend> world_;
};

}  // namespace weft
