#include <mpi.h>
#include <random>

#include <fmt/format.h>

#include "weft/comm/mpi/mpi_api.h"
#include "weft/comm/mpi/mpi_world.h"

namespace weft {
namespace {

std::optional<Error> run_ranks_of_mpi(const RunOptions& options, const std::function<void(World&)>& body) {
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
  uint64_t run = std::random_device()() * 0x100000001ull + std::random_device()();
  MPI_Bcast(&run, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  run_process_rank(std::make_shared<MpiRank>(rank, size, options, RunRecords::in(options.comm.records, run),
                                             MpiRank::Host::of_this_process(MPI_COMM_WORLD)),
                   options, body);
  MPI_Finalize();
  return {};
}

}  // namespace
}  // namespace weft

extern "C" __attribute__((visibility("default"))) const weft::MpiApi* weft_mpi_api() {
  static const weft::MpiApi api{.version = weft::kMpiApiVersion, .run = weft::run_ranks_of_mpi};
  return &api;
}
