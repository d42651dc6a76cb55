#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mpi.h>
#include <string>
#include <vector>

#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/transfers.h"
#include "weft/comm/mpi/watch.h"
#include "weft/comm/run_ranks.h"

namespace weft {

/// One MPI process's end of the world. MPI is initialized before and finalized after it.
class MpiRank : public WorldBackend {
 public:
  /// Where the ranks' records are, the same on all ranks of a host, and what tells this run from others there.
  struct Records {
    std::filesystem::path folder;
    uint64_t run = 0;
  };

  /// All processes together.
  MpiRank(int64_t rank, int64_t size, const CommOptions& options, const MpiTuning& tuning, Records records,
          const std::function<void(const std::string&)>& report);
  ~MpiRank() override;

  std::string_view backend_name() const override { return "MPI"; }
  std::unique_ptr<GroupBackend> make_group(const std::string& name, const std::vector<int64_t>& ranks) override;

  MpiEngine& engine() { return engine_; }
  Watch& watch() { return *watch_; }
  bool has_core_per_rank() const { return has_core_per_rank_; }
  /// Counts an operation that this process starts, under a key that its peers compute alike; returns its number.
  uint64_t count(uint64_t key);

  /// Moves everything on until the operation is over. Throws RankFailure when a rank that it needs is dead, has left
  /// without coming (`key_at` says under which key each rank counts what is number `number` here), or is late.
  void wait(const MpiOperation& operation, const OperationNote& note, const std::vector<int64_t>& ranks,
            const std::function<uint64_t(size_t)>& key_at, uint64_t number);

  /// Waits for everyone to come here, so that nobody's messages are lost.
  void leave();
  /// Whether this process is the one on its host that tells the user.
  bool claim_message();
  /// Which of this host's other ranks wait, and in what. Gives them so long to come to it.
  std::string who_waits(std::chrono::milliseconds patience = std::chrono::milliseconds(200)) const;
  /// What is said of a failure: who, what it did last, and who waited.
  std::string describe(const RankNews& news, const std::string& waiting) const;

 private:
  [[noreturn]] void give_up(const RankNews& news, const OperationNote& note);

  MpiTuning tuning_;
  Records records_;
  bool has_core_per_rank_ = true;
  int tags_ = 0;
  MPI_Comm world_comm_ = MPI_COMM_NULL;
  MpiScratch scratch_;
  MpiEngine engine_;
  std::unique_ptr<Watch> watch_;
  OperationCounts counts_;                      ///< under the engine's lock
  std::map<std::string, uint64_t> num_groups_;  ///< made under each name and ranks
};

}  // namespace weft
