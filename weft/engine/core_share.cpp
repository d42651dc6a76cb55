#include "weft/engine/core_share.h"

#include <algorithm>
#include <sched.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/tensor/rank_threads.h"

namespace weft {

int usable_cores() {
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  cpu_set_t mine;
  CPU_ZERO(&mine);
  return sched_getaffinity(0, sizeof(mine), &mine) == 0 ? std::max(1, CPU_COUNT(&mine)) : all;
}

CoreShare share_cores(const Launch& launch, int64_t world_size, int64_t wanted_threads) {
  CoreShare share{.cores = usable_cores(), .ranks = ranks_of_host(launch, world_size).count};
  const bool is_bound = launch.kind != Launch::Kind::kThreads && share.cores < sysconf(_SC_NPROCESSORS_ONLN);
  if (is_bound) share.ranks = 1;
  share.threads_per_rank = wanted_threads > 0
                               ? wanted_threads
                               : threads_per_rank(static_cast<int>(share.cores), static_cast<int>(share.ranks));
  return share;
}

std::optional<Error> check_threads(const TrainConfig& config, int64_t cores) {
  const int64_t most = kMostThreadsPerCore * cores;
  if (config.threads_per_rank <= most) return std::nullopt;
  return Error{.source = config.source,
               .field = "threads_per_rank",
               .problem = fmt::format("is {}, a whole number from 1 to {} is needed on {}", config.threads_per_rank,
                                      most, counted(cores, "core")),
               .advice = "Leave it out: the cores are shared out among the ranks then."};
}

std::vector<std::string> notes_of(const CoreShare& share, const TrainConfig& config) {
  if (config.device != "cpu") return {};
  std::vector<std::string> notes;
  if (share.threads_per_rank > share.cores) {
    notes.push_back(fmt::format(
        "{}: threads_per_rank is {}, but there {} {}: threads wait for each other. Without the "
        "field the cores are shared out",
        config.source, share.threads_per_rank, share.cores == 1 ? "is" : "are", counted(share.cores, "core")));
  } else if (share.threads_per_core() > 1) {
    const int64_t threads = share.ranks * share.threads_per_rank;
    notes.push_back(fmt::format(
        "{} {} on {}: steps take about {:.2g} times as long as on {} cores", counted(share.ranks, "rank"),
        share.threads_per_rank == 1 ? "compute" : fmt::format("with {} threads each compute", share.threads_per_rank),
        counted(share.cores, "core"), share.threads_per_core(), threads));
  }
  return notes;
}

}  // namespace weft
