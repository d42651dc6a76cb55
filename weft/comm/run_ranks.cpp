#include "weft/comm/run_ranks.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include <fmt/format.h>

#include "weft/comm/mpi/mpi_api.h"
#include "weft/comm/threads/run_threads.h"

namespace weft {
namespace {

std::optional<int64_t> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return {};
  char* end = nullptr;
  const int64_t number = std::strtoll(text, &end, 10);
  if (*end != '\0' || number < 0) return {};
  return number;
}

std::filesystem::path find_mpi_library() {
  const std::filesystem::path name = "libweft_mpi.so";
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  const std::filesystem::path installed = program.parent_path() / "lib" / name;
  return std::filesystem::exists(installed, failed) ? installed : program / name;
}

std::optional<Error> run_mpi_rank(const RunOptions& options, const std::function<void(World&)>& body) {
  const std::filesystem::path path = options.mpi_library.empty() ? find_mpi_library() : options.mpi_library;
  const auto failure = [&](const std::string& problem) {
    return Error{.kind = ErrorKind::kJob,
                 .source = path.string(),
                 .problem = problem,
                 .advice = "Build where OpenMPI is installed (scripts/setup installs it)."};
  };
  // OpenMPI loads parts of its own that look for its symbols, so they are global. It stays loaded until the process
  // ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) return failure(fmt::format("the MPI backend cannot be loaded: {}", dlerror()));
  const auto get_api = reinterpret_cast<const MpiApi* (*)()>(dlsym(library, kMpiEntryPoint));
  if (get_api == nullptr) return failure("is not Weft's MPI backend");
  if (std::strcmp(get_api()->version, kMpiApiVersion) != 0) return failure("belongs to another version of Weft");
  return get_api()->run(options, body);
}

}  // namespace

Launch detect_launch() {
  if (const auto size = number_in("OMPI_COMM_WORLD_SIZE"))
    return {Launch::Kind::kMpi, *size, number_in("OMPI_COMM_WORLD_RANK").value_or(0)};
  // srun with PMIx or PMI-2. Its own SLURM_NTASKS alone does not mean that this process is one of several.
  for (const char* variable : {"PMIX_RANK", "PMI_RANK"}) {
    if (const auto rank = number_in(variable))
      return {Launch::Kind::kMpi, number_in("SLURM_NTASKS").value_or(0), *rank};
  }
  return {};
}

std::optional<Error> run_ranks(const RunOptions& options, const std::function<void(World&)>& body) {
  const Launch launch = detect_launch();
  if (launch.kind == Launch::Kind::kThreads) {
    return run_thread_ranks(options.size > 0 ? options.size : 1, options.comm, body);
  }
  if (options.size > 0 && launch.size > 0 && options.size != launch.size) {
    return Error{
        .problem = fmt::format("{} ranks are needed, but the launcher started {} processes", options.size, launch.size),
        .advice = fmt::format("Start it with mpirun -n {}.", options.size)};
  }
  return run_mpi_rank(options, body);
}

}  // namespace weft
