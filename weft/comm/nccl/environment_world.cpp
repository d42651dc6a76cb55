#include "weft/comm/nccl/environment_world.h"

#include <random>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "weft/comm/process/reception.h"

namespace weft {
namespace {

/// What tells ranks of Weft in a world of this size from strangers at the same port.
uint64_t token_of(const EnvironmentRank& own) {
  return (0x5745465457454654u ^ static_cast<uint64_t>(own.size)) * 0x9e3779b97f4a7c15u;
}

/// Rank 0 receives at MASTER_PORT, and the others come there.
Result<Visit> meet(const EnvironmentRank& own, const CommOptions& options) {
  Visit result;
  if (own.rank > 0) return visit(own.master_host, own.master_port, token_of(own), own.rank, options.timeout);
  result.run = std::random_device()() * 0x100000001ull + std::random_device()();
  if (own.size == 1) return result;
  const auto problem_at_port = [&](const std::string& problem, const char* advice) {
    return Error{.kind = ErrorKind::kJob,
                 .source = "MASTER_PORT",
                 .problem = fmt::format("rank 0, port {}: {}", own.master_port, problem),
                 .advice = advice};
  };
  std::optional<Reception> reception;
  try {
    reception.emplace(own.master_port, token_of(own));
  } catch (const std::system_error& error) {
    return problem_at_port(error.what(), "Give all ranks a port that is free on rank 0's host.");
  }
  try {
    result.connections = reception->receive(own.size, result.run, options.timeout);
  } catch (const std::runtime_error& error) {
    return problem_at_port(error.what(), "Start all ranks, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT.");
  }
  return result;
}

}  // namespace

EnvironmentWorld::EnvironmentWorld(const EnvironmentRank& own, const RunOptions& options, RunRecords records,
                                   std::vector<RankConnection> connections)
    : ProcessRank(own.rank, own.size, options.comm, std::move(records), std::thread::hardware_concurrency() > 1),
      gpu_(own.local_rank) {
  start_watch(std::move(connections), options.report);
}

EnvironmentWorld::~EnvironmentWorld() {
  if (plane_) plane_->break_off();
}

std::optional<Error> EnvironmentWorld::start_plane() {
  auto plane = OwnNcclPlane::create(*this, gpu_);
  if (!plane) return plane.error();
  plane_ = *std::move(plane);
  return {};
}

void EnvironmentWorld::halt() noexcept {
  ProcessRank::halt();
  if (plane_) plane_->break_off();
}

std::unique_ptr<GroupBackend> EnvironmentWorld::make_group(const std::string& name, const std::vector<int64_t>& ranks) {
  return plane_->make_group(name, ranks, new_group_id(name, ranks));
}

void EnvironmentWorld::meet_at_end(const OperationNote& note) {
  ProcessRank::meet_at_end(note);
  plane_->close();
}

std::optional<Error> run_environment_rank(const RunOptions& options, const std::function<void(World&)>& body) {
  const auto own = read_environment_rank();
  if (!own) return own.error();
  // Before the ranks meet, so that a machine without GPUs says so at once.
  const auto device = CudaDevice::open(own->local_rank);
  if (!device) {
    Error error = device.error();
    error.problem = fmt::format("rank {} of WORLD_SIZE {} needs a GPU: {}", own->rank, own->size, error.problem);
    error.advice = fmt::format(
        "WORLD_SIZE is set, as torchrun sets it, and such ranks compute on a GPU each. On processors start it with "
        "mpirun -n {}, or unset WORLD_SIZE for ranks that are threads.",
        own->size);
    return error;
  }
  if (const auto nccl = nccl_library(); !nccl) return nccl.error();
  auto met = meet(*own, options.comm);
  if (!met) return met.error();
  const auto world = std::make_shared<EnvironmentWorld>(*own, options, RunRecords::in(options.comm.records, met->run),
                                                        std::move(met->connections));
  if (auto error = world->start_plane()) {
    world->watch().announce({.rank = own->rank, .how = fmt::format("failed: {}", error->message())});
    return error;
  }
  run_process_rank(world, options, body);
  return {};
}

}  // namespace weft
