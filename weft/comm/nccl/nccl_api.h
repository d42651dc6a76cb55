#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/process/process_rank.h"
#include "weft/comm/run_ranks.h"

namespace weft {

/// NCCL as what moves GPU memory in a world of processes, each with a GPU to itself.
class NcclPlane {
 public:
  virtual ~NcclPlane() = default;
  /// One rank's end of a group, for memory of that GPU. `id` as ProcessRank gives it. Makes no communicator yet: the
  /// first operation does.
  virtual std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks,
                                                   uint64_t id) = 0;
  /// Ends everything that is under way, so that nobody touches its memory. After a failure.
  virtual void break_off() noexcept = 0;
  /// Ends all communicators in order. Everyone has come to the end of the run.
  virtual void close() = 0;
};

/// The door to the library with the NCCL backend, which is loaded when a run has GPUs. Both sides are built together.
struct NcclApi {
  const char* version;
  Result<std::unique_ptr<NcclPlane>> (*make_plane)(ProcessRank& rank, int gpu);
  /// This process as one rank of those that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT tell of.
  std::optional<Error> (*run)(const RunOptions& options, const std::function<void(World&)>& body);
};

inline constexpr char kNcclEntryPoint[] = "weft_nccl_api";
inline constexpr char kNcclApiVersion[] = "2";

/// Loads it. `given` as in RunOptions.
Result<const NcclApi*> load_nccl_backend(const std::filesystem::path& given);

}  // namespace weft
