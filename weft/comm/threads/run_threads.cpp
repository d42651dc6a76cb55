#include "weft/comm/threads/run_threads.h"

#include <pthread.h>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/threads/thread_world.h"

namespace weft {
namespace {

void run_rank(ThreadWorld& shared, const std::shared_ptr<ThreadRank>& rank, const std::function<void(World&)>& body) {
  pthread_setname_np(pthread_self(), fmt::format("rank {}", rank->rank()).c_str());
  try {
    World world(rank);
    body(world);
    shared.leave(rank->rank());
  } catch (...) {
    // A failure that this rank only learned of while it waited is noted already and stays the first.
    const std::exception_ptr cause = std::current_exception();
    shared.fail(rank->rank(), how_it_failed(cause), cause);
  }
}

[[noreturn]] void throw_failure(const ThreadFailure& failure) {
  const RankFailure outer(failure.message(), failure.rank);
  if (!failure.cause) throw outer;
  try {
    std::rethrow_exception(failure.cause);
  } catch (...) {
    std::throw_with_nested(outer);
  }
}

}  // namespace

std::optional<Error> run_thread_ranks(int64_t size, const CommOptions& options,
                                      const std::function<void(World&)>& body) {
  const auto shared = std::make_shared<ThreadWorld>(size, options);
  std::vector<std::shared_ptr<ThreadRank>> ranks;
  for (int64_t rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_shared<ThreadRank>(shared, rank));
    if (options.records.empty()) continue;
    if (auto error = ranks.back()->record().keep_in(options.records)) return error;
  }
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (const auto& rank : ranks) threads.emplace_back([&shared, &rank, &body] { run_rank(*shared, rank, body); });
  for (std::thread& thread : threads) thread.join();
  if (const auto failure = shared->failure()) throw_failure(*failure);
  for (const auto& rank : ranks) rank->record().remove_file();
  return {};
}

}  // namespace weft
