#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/comm/comm_options.h"
#include "weft/comm/group.h"
#include "weft/mesh/mesh.h"

namespace weft {

/// One rank's end of a backend: makes groups, and holds what they share.
class WorldBackend {
 public:
  WorldBackend(int64_t rank, int64_t size, const CommOptions& options)
      : rank_(rank), size_(size), options_(options), record_(rank) {}
  virtual ~WorldBackend() = default;
  WorldBackend(const WorldBackend&) = delete;
  WorldBackend& operator=(const WorldBackend&) = delete;

  /// "threads", for messages.
  virtual std::string_view backend_name() const = 0;
  /// Every one of the ranks calls this alike, and no others need to.
  virtual std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) = 0;

  /// The GPU that this rank is to use, where the world has given it one.
  virtual std::optional<Device> gpu() const { return {}; }

  /// Scopes in which this rank waits for others without a limit (see UnlimitedWaits) begin and end.
  virtual void add_unlimited(int change) { num_unlimited_ += change; }
  bool waits_without_limit() const { return num_unlimited_.load() > 0; }

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  const CommOptions& options() const { return options_; }
  RankRecord& record() { return record_; }
  TrafficCounters& counters() { return counters_; }

 private:
  int64_t rank_;
  int64_t size_;
  CommOptions options_;
  RankRecord record_;
  TrafficCounters counters_;
  std::atomic<int> num_unlimited_{0};
};

/// All ranks of a run, seen from one of them; groups are made here.
class World {
 public:
  explicit World(std::shared_ptr<WorldBackend> backend);

  int64_t rank() const { return backend_->rank(); }
  int64_t size() const { return backend_->size(); }
  std::string_view backend_name() const { return backend_->backend_name(); }
  const CommOptions& options() const { return backend_->options(); }
  /// The GPU that this rank is to use: processes are given one each as far as there are enough, thread ranks none.
  std::optional<Device> gpu() const { return backend_->gpu(); }

  /// How long this rank has been blocked in operations so far.
  double waited_ms() const;

  /// What this rank has done in all groups so far.
  TrafficList traffic() const { return backend_->counters().list(); }

  /// From now on every operation is written down, of groups that exist already, too.
  void keep_calls() { backend_->counters().log().keep(); }
  /// Those since then, in the order in which this rank started them.
  std::vector<GroupCall> calls() const { return backend_->counters().log().list(); }

  /// The group of everyone.
  Group& all() { return all_; }
  /// A group of these ranks, which name it alike and make their common groups in the same order. This rank must be
  /// one of them.
  Result<Group> group(const std::string& name, const std::vector<int64_t>& ranks);
  /// This rank's group along the joined axes of a mesh (see Mesh::groups), named by them, like "tp+cp".
  Result<Group> group(const Mesh& mesh, const AxisList& axes);

 private:
  std::shared_ptr<WorldBackend> backend_;
  Group all_;
};

}  // namespace weft
