#include "weft/comm/mpi/mpi_world.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/failure.h"
#include "weft/comm/mpi/mpi_group.h"
#include "weft/comm/process/reception.h"

namespace weft {
namespace {

int tag_limit(MPI_Comm comm) {
  int* limit = nullptr;
  int is_set = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&limit), &is_set);
  return is_set != 0 ? *limit : 32767;
}

/// Everyone comes to rank 0 over TCP.
std::vector<RankConnection> connect_ranks(MPI_Comm comm, int64_t rank, int64_t size, bool is_local) {
  std::unique_ptr<Reception> reception;
  Invitation invitation;
  if (rank == 0 && size > 1) {
    reception = std::make_unique<Reception>(is_local);
    invitation = reception->invitation();
  }
  check_mpi(MPI_Bcast(&invitation, sizeof(invitation), MPI_BYTE, 0, comm), "MPI_Bcast");
  if (rank != 0) return visit(invitation, rank);
  return reception ? reception->receive(size, 0, std::chrono::seconds(30)) : std::vector<RankConnection>();
}

/// A rank's GPU as bytes that MPI gathers.
struct GpuCard {
  char host[256] = {};
  char uuid[33] = {};
};

}  // namespace

MpiRank::Host MpiRank::Host::of_this_process(MPI_Comm comm) {
  MPI_Comm host_comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host_comm), "MPI_Comm_split_type");
  Host host;
  int fewest = 1, size = 1;
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(host_comm, &host.local_rank);
  MPI_Comm_size(host_comm, &host.num_local);
  MPI_Comm_free(&host_comm);
  check_mpi(MPI_Allreduce(&host.num_local, &fewest, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce");
  host.is_only = fewest == size;
  return host;
}

MpiRank::MpiRank(int64_t rank, int64_t size, const RunOptions& options, RunRecords records, const Host& host)
    : ProcessRank(rank, size, options.comm, std::move(records),
                  host.num_local <= static_cast<int>(std::thread::hardware_concurrency())),
      tuning_(options.mpi_tuning),
      nccl_library_(options.nccl_library) {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &world_comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(world_comm_, MPI_ERRORS_RETURN);
  tags_ = tag_limit(world_comm_) / 4;
  start_watch(connect_ranks(world_comm_, rank, size, host.is_only), options.report);
  choose_gpus(host);
}

MpiRank::~MpiRank() {
  engine_.halt();
}

std::string_view MpiRank::backend_name() const {
  return plane_.plane == GpuPlane::kNccl ? "MPI and NCCL" : "MPI";
}

void MpiRank::choose_gpus(const Host& host) {
  GpuCard own;
  gethostname(own.host, sizeof(own.host) - 1);
  if (const int num = num_gpus(); num > 0) {
    const int index = host.local_rank % num;
    if (const auto name = gpu_name(index)) {
      gpu_ = Device{DeviceKind::kCuda, index};
      std::strncpy(own.uuid, name->uuid.c_str(), sizeof(own.uuid) - 1);
    }
  }
  std::vector<GpuCard> cards(static_cast<size_t>(size()));
  check_mpi(MPI_Allgather(&own, sizeof(own), MPI_BYTE, cards.data(), sizeof(own), MPI_BYTE, world_comm_),
            "MPI_Allgather");
  std::vector<RankGpu> gpus;
  for (const GpuCard& card : cards) gpus.push_back({card.host, card.uuid});
  plane_ = choose_gpu_plane(gpus);
}

Result<NcclPlane*> MpiRank::nccl() {
  const std::lock_guard lock(nccl_mutex_);
  if (!nccl_) {
    const auto api = load_nccl_backend(nccl_library_);
    if (api) {
      nccl_.emplace((*api)->make_plane(*this, gpu_->index));
    } else {
      nccl_.emplace(api.error());
    }
  }
  if (!*nccl_) return nccl_->error();
  return (**nccl_).get();
}

void MpiRank::halt() noexcept {
  ProcessRank::halt();
  engine_.halt();
  const std::lock_guard lock(nccl_mutex_);
  if (nccl_ && *nccl_) (**nccl_)->break_off();
}

std::unique_ptr<GroupBackend> MpiRank::make_group(const std::string& name, const std::vector<int64_t>& ranks) {
  const uint64_t id = new_group_id(name, ranks);
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  MpiChannel channel{.comm = world_comm_,
                     .rank = place,
                     .size = static_cast<int>(ranks.size()),
                     .tags = tags_,
                     .tuning = tuning_,
                     .scratch = &scratch_,
                     .num_sent = std::vector<uint64_t>(ranks.size(), 0),
                     .num_received = std::vector<uint64_t>(ranks.size(), 0)};
  // Making a communicator cannot be interrupted. So all first meet in a way that can, and what follows is short.
  if (ranks.size() > 1 && !engine_.is_halted()) {
    const OperationNote note({}, 0, name);
    record().note(RankPhase::kWaiting, note);
    const auto meeting = std::make_shared<MpiStages>();
    const int tag = 3 * tags_ + static_cast<int>(id % static_cast<uint64_t>(tags_));
    meeting->add_chain({[this, &ranks, tag](MpiRequests& requests) {
      for (const int64_t member : ranks) {
        const auto peer = static_cast<int>(member);
        if (peer == rank()) continue;
        check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests.emplace_back()), "MPI_Isend");
        check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, &requests.emplace_back()), "MPI_Irecv");
      }
    }});
    const uint64_t number = count(id ^ 1);
    engine_.start(meeting);
    const MpiEngine::Waiter waiter(engine_);
    wait({.note = note,
          .ranks = ranks,
          .key_at = [id](size_t) { return id ^ 1; },
          .number = number,
          .poll = [&] { return engine_.poll(meeting.get()); }});
    const auto lock = engine_.lock();
    std::vector<int> members(ranks.begin(), ranks.end());
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &some);
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &channel.comm), "MPI_Comm_create_group");
    MPI_Comm_set_errhandler(channel.comm, MPI_ERRORS_RETURN);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    record().note(RankPhase::kFinished, note);
  } else {
    const auto lock = engine_.lock();
    check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &channel.comm), "MPI_Comm_dup");
  }
  return std::make_unique<MpiGroup>(*this, std::move(channel), name, ranks, id);
}

void MpiRank::meet_at_end(const OperationNote& note) {
  const auto meeting = std::make_shared<MpiStages>();
  meeting->add_chain({[this](MpiRequests& requests) {
    check_mpi(MPI_Ibarrier(world_comm_, &requests.emplace_back()), "MPI_Ibarrier");
  }});
  engine_.start(meeting);
  {
    const MpiEngine::Waiter waiter(engine_);
    wait({.note = note,
          .ranks = {},
          .key_at = [](size_t) { return 0; },
          .number = 0,
          .poll = [&] { return engine_.poll(meeting.get()); }});
  }
  if (nccl_ && *nccl_) (**nccl_)->close();
  engine_.halt();
}

}  // namespace weft
