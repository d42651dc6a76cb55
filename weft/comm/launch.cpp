#include "weft/comm/launch.h"

#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/comm/variable.h"

namespace weft {
namespace {

std::optional<int64_t> number_in(const char* name) {
  const char* text = variable_text(name);
  if (text == nullptr) return {};
  char* end = nullptr;
  const int64_t number = std::strtoll(text, &end, 10);
  if (*end != '\0' || number < 0) return {};
  return number;
}

constexpr char kAdvice[] =
    "A launcher like torchrun sets WORLD_SIZE, RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; unset WORLD_SIZE for "
    "ranks "
    "that are threads.";

/// A number in a range that must be there, unless there is a default.
Result<int64_t> required(const char* variable, int64_t least, int64_t most, std::optional<int64_t> otherwise = {}) {
  const char* text = variable_text(variable);
  if (text == nullptr) {
    if (otherwise) return *otherwise;
    return Error{
        .source = variable,
        .problem = fmt::format("is not set, expected a number from {} to {}, since WORLD_SIZE is set", least, most),
        .advice = kAdvice};
  }
  const auto number = number_in(variable);
  if (number && *number >= least && *number <= most) return *number;
  return Error{.source = variable,
               .problem = fmt::format("{} is no whole number from {} to {}", in_quotes(text), least, most),
               .advice = kAdvice};
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
  if (variable_text("WORLD_SIZE") != nullptr) {
    return {Launch::Kind::kEnvironment, number_in("WORLD_SIZE").value_or(0), number_in("RANK").value_or(0)};
  }
  return {};
}

HostRanks ranks_of_host(const Launch& launch, int64_t world_size) {
  const HostRanks all{.count = world_size};
  if (launch.kind == Launch::Kind::kThreads) return all;
  const bool is_mpi = launch.kind == Launch::Kind::kMpi;
  const auto count = number_in(is_mpi ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "LOCAL_WORLD_SIZE");
  const auto local_rank = number_in(is_mpi ? "OMPI_COMM_WORLD_LOCAL_RANK" : "LOCAL_RANK");
  if (!count || !local_rank || *count < 1 || *local_rank > launch.rank) return all;
  const int64_t first = launch.rank - *local_rank;
  if (first + *count > world_size) return all;
  return {.first = first, .count = *count};
}

Result<EnvironmentRank> read_environment_rank() {
  constexpr int64_t kMostRanks = 1 << 20, kMostGpus = 1 << 10;
  EnvironmentRank result;
  WEFT_TRY(result.size, required("WORLD_SIZE", 1, kMostRanks));
  WEFT_TRY(result.rank, required("RANK", 0, result.size - 1));
  // Without it, all ranks are taken to be on one host.
  WEFT_TRY(const int64_t local_rank, required("LOCAL_RANK", 0, kMostGpus, result.rank));
  result.local_rank = static_cast<int>(local_rank);
  const char* host = variable_text("MASTER_ADDR");
  if (host == nullptr && result.size > 1) {
    return Error{.source = "MASTER_ADDR",
                 .problem = "is not set, expected the name or the address of rank 0's host, since WORLD_SIZE is set",
                 .advice = kAdvice};
  }
  result.master_host = host == nullptr ? "127.0.0.1" : host;
  // One rank has nobody to meet.
  WEFT_TRY(int64_t port,
           required("MASTER_PORT", 1, 65535, result.size == 1 ? std::optional<int64_t>(0) : std::nullopt));
  // torchrun's agent may itself listen at that port; then the one after it is ours.
  const char* agent = variable_text("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::strcmp(agent, "True") == 0 && port > 0 && port < 65535) ++port;
  result.master_port = static_cast<uint16_t>(port);
  return result;
}

}  // namespace weft
