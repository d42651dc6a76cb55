#include "weft/comm/run_ranks.h"

#include <cstring>

#include <fmt/format.h>

#include "weft/comm/mpi/mpi_api.h"
#include "weft/comm/nccl/nccl_api.h"
#include "weft/comm/plugin_library.h"
#include "weft/comm/threads/run_threads.h"

namespace weft {
namespace {

Error other_version(const std::string& file) {
  return {.kind = ErrorKind::kJob, .source = file, .problem = "belongs to another version of Weft"};
}

std::optional<Error> run_mpi_rank(const RunOptions& options, const std::function<void(World&)>& body) {
  const PluginLibrary library{.file = "libweft_mpi.so",
                              .what = "the MPI backend",
                              .entry_point = kMpiEntryPoint,
                              .advice = "Build where OpenMPI is installed (scripts/setup installs it)."};
  const auto entry_point = load_plugin(library, options.mpi_library);
  if (!entry_point) return entry_point.error();
  const MpiApi* api = reinterpret_cast<const MpiApi* (*)()>(*entry_point)();
  if (std::strcmp(api->version, kMpiApiVersion) != 0) return other_version(library.file);
  return api->run(options, body);
}

std::optional<Error> run_environment_rank(const RunOptions& options, const std::function<void(World&)>& body) {
  const auto api = load_nccl_backend(options.nccl_library);
  if (!api) return api.error();
  return (*api)->run(options, body);
}

}  // namespace

Result<const NcclApi*> load_nccl_backend(const std::filesystem::path& given) {
  const PluginLibrary library{.file = "libweft_nccl.so",
                              .what = "the NCCL backend",
                              .entry_point = kNcclEntryPoint,
                              .advice = "Build or install Weft anew: the library belongs beside the program."};
  WEFT_TRY(void* entry_point, load_plugin(library, given));
  const NcclApi* api = reinterpret_cast<const NcclApi* (*)()>(entry_point)();
  if (std::strcmp(api->version, kNcclApiVersion) != 0) return other_version(library.file);
  return api;
}

std::optional<Error> run_ranks(const RunOptions& options, const std::function<void(World&)>& body) {
  const Launch launch = detect_launch();
  if (launch.kind == Launch::Kind::kThreads) {
    return run_thread_ranks(options.size > 0 ? options.size : 1, options.comm, body);
  }
  const bool is_mpi = launch.kind == Launch::Kind::kMpi;
  // Before the number of processes is judged by what the environment says, and before anything is loaded.
  if (!is_mpi) {
    if (const auto rank = read_environment_rank(); !rank) return rank.error();
  }
  if (options.size > 0 && launch.size > 0 && options.size != launch.size) {
    return Error{
        .problem = fmt::format("{} needed, but the launcher started {}",
                               options.size == 1 ? "1 rank is" : fmt::format("{} ranks are", options.size),
                               launch.size == 1 ? "1 process" : fmt::format("{} processes", launch.size)),
        .advice = is_mpi ? fmt::format("Start it with mpirun -n {}.", options.size)
                         : fmt::format("Start {} processes: WORLD_SIZE says {}. Without a launcher, unset WORLD_SIZE: "
                                       "ranks are threads then.",
                                       options.size, launch.size)};
  }
  return is_mpi ? run_mpi_rank(options, body) : run_environment_rank(options, body);
}

}  // namespace weft
