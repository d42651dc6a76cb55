#include <exception>
#include <mpi.h>
#include <random>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/failure.h"
#include "weft/comm/mpi/mpi_api.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {
namespace {

/// The given folder, or one that no run before has used; the same on all ranks.
MpiRank::Records records_in(const std::filesystem::path& given) {
  uint64_t run = std::random_device()() * 0x100000001ull + std::random_device()();
  MPI_Bcast(&run, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (!given.empty()) return {given, run};
  return {std::filesystem::temp_directory_path() / fmt::format("weft-records-{:016x}", run), run};
}

std::string how_it_failed(const std::exception_ptr& cause) {
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& error) {
    return fmt::format("failed: {}", error.what());
  } catch (...) {
    return "failed: it threw something that is no std::exception";
  }
}

/// Whether the message is still to be shown. The first process of a host that knows shows it at once, before others
/// hear of it and end: once some have, a launcher may end this one, or not listen any more. The others give it time.
bool must_still_print(MpiRank& rank, const RunOptions& options, const std::string& message) {
  if (!rank.claim_message()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return false;
  }
  if (options.report) options.report(message);
  return !options.report;
}

/// Tells the user and everyone else. Called while an exception is handled.
[[noreturn]] void fail(MpiRank& rank, const RunOptions& options) {
  rank.watch().stand_down();
  try {
    throw;
  } catch (const RankFailure& failure) {
    throw RankFailure(failure.what(), failure.rank(), must_still_print(rank, options, failure.what()));
  } catch (...) {
    const RankNews news{.rank = rank.rank(), .how = how_it_failed(std::current_exception())};
    const std::string message = rank.describe(news, rank.who_waits());
    const bool should_print = must_still_print(rank, options, message);
    rank.watch().announce(news);
    std::throw_with_nested(RankFailure(message, rank.rank(), should_print));
  }
}

std::optional<Error> run(const RunOptions& options, const std::function<void(World&)>& body) {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  WEFT_CHECK(is_initialized == 0, "MPI ranks can be run once in a process");
  int provided = 0, rank = 0, size = 1;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  WEFT_CHECK(provided >= MPI_THREAD_SERIALIZED, "this MPI lets only one thread call it");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (options.size > 0 && options.size != size) {
    MPI_Finalize();
    return Error{.problem = fmt::format("{} ranks are needed, but {} processes were started", options.size, size),
                 .advice = fmt::format("Start {} processes.", options.size)};
  }
  const MpiRank::Records records = records_in(options.comm.records);
  const auto backend = std::make_shared<MpiRank>(rank, size, options.comm, options.mpi_tuning, records, options.report);
  try {
    if (const auto error = backend->record().keep_in(records.folder)) throw std::runtime_error(error->message());
    World world(backend);
    body(world);
    backend->leave();
  } catch (...) {
    fail(*backend, options);
  }
  backend->record().remove_file();
  std::error_code not_empty;
  if (options.comm.records.empty()) std::filesystem::remove(records.folder, not_empty);  // by a host's last rank
  MPI_Finalize();
  return {};
}

}  // namespace
}  // namespace weft

extern "C" __attribute__((visibility("default"))) const weft::MpiApi* weft_mpi_api() {
  static const weft::MpiApi api{.version = weft::kMpiApiVersion, .run = weft::run};
  return &api;
}
