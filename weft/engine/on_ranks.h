#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/core_share.h"
#include "weft/engine/guarded.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/train_config.h"
#include "weft/plan/plan.h"
#include "weft/tensor/deterministic.h"
#include "weft/tensor/rank_threads.h"

namespace weft {

/// An error without words: another process of the run shows it.
inline Error told_elsewhere(ErrorKind kind) {
  return {.kind = kind};
}

/// Runs something once on every rank that this process stands for. The result is rank 0's; errors are of all ranks.
template <typename Value, typename Body>
Result<std::optional<Value>> on_ranks(const Plan& plan, const TrainConfig& config, const std::vector<RankNeed>& memory,
                                      const std::function<void(const std::string&)>& say, const Body& body) {
  const Launch launch = detect_launch();
  if (auto error = check_threads(config, usable_cores()))
    return launch.is_speaker() ? *std::move(error) : told_elsewhere(error->kind);
  // Before there are threads, of which a plan may have thousands; processes meet first, so that none waits in vain.
  if (launch.kind == Launch::Kind::kThreads && config.device == "cpu") {
    if (auto error = check_rank_memory(memory, ranks_of_host(launch, plan.world_size), at::kCPU))
      return *std::move(error);
  }
  RunOptions options{.size = plan.world_size};
  WEFT_TRY(options.comm, comm_options_from_environment());
  if (say) options.report = say;
  std::mutex guard;
  std::optional<Value> value;
  std::optional<Error> error;
  bool is_own = false;  // of this process alone
  const auto run = [&](World& world) {
    use_rank_threads(static_cast<int>(share_cores(launch, world.size(), config.threads_per_rank).threads_per_rank));
    // LibTorch's messages are stack traces; what a rank dies of is told in our words.
    Result<Value> result = [&]() -> Result<Value> {
      try {
        return body(world);
      } catch (const c10::Error& failure) {
        throw RankError(explain_libtorch_error(failure, kMemoryAdvice));
      } catch (const std::bad_alloc&) {
        throw RankError(memory_ran_out("", kMemoryAdvice));
      }
    }();
    const std::lock_guard lock(guard);
    if (!result) {
      if (!error) error = std::move(result).error();
    } else if (world.rank() == 0) {
      value = *std::move(result);
    }
  };
  set_deterministic(config.is_deterministic);
  try {
    if (auto failed = run_ranks(options, run)) {
      error = std::move(failed);
      is_own = launch.size == plan.world_size;  // else all processes find the same: that they are too many or too few
    }
  } catch (const RankFailure& failure) {
    if (error && failure.should_print()) return *error;  // why a rank of this process did not go on
    if (!failure.should_print()) return told_elsewhere(ErrorKind::kJob);
    return Error{.kind = ErrorKind::kJob, .problem = failure.what()};
  }
  if (!error) return value;
  return launch.is_speaker() || is_own ? *error : told_elsewhere(error->kind);
}

}  // namespace weft
