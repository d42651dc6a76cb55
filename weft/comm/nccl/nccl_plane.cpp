#include "weft/comm/nccl/nccl_plane.h"

#include <cstdlib>
#include <stdexcept>

#include <fmt/format.h>

#include "weft/comm/nccl/nccl_group.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// How long ending may take after a failure, when nothing more is to be had.
constexpr auto kAbortPatience = std::chrono::seconds(2);

}  // namespace

Result<std::unique_ptr<OwnNcclPlane>> OwnNcclPlane::create(ProcessRank& rank, int gpu) {
  if (const char* given = std::getenv("NCCL_COMM_ID"); given != nullptr && *given != '\0') {
    return Error{.source = "NCCL_COMM_ID",
                 .problem = "is set, and would give all communicators of a run one address",
                 .advice = "Unset it: Weft brings its ranks together itself."};
  }
  WEFT_TRY(const std::shared_ptr<CudaDevice> device, CudaDevice::open(gpu));
  WEFT_TRY(const NcclLibrary* nccl, nccl_library());
  return std::unique_ptr<OwnNcclPlane>(new OwnNcclPlane(rank, *nccl, device));
}

OwnNcclPlane::OwnNcclPlane(ProcessRank& rank, const NcclLibrary& nccl, const std::shared_ptr<CudaDevice>& device)
    : world_(rank),
      nccl_(nccl),
      device_(device),
      pinned_(CudaMemory::create(device, CudaMemory::Kind::kPinned)),
      on_device_(CudaMemory::create(device, CudaMemory::Kind::kDevice)) {}

std::unique_ptr<GroupBackend> OwnNcclPlane::make_group(const std::string& name, const std::vector<int64_t>& ranks,
                                                       uint64_t id) {
  return std::make_unique<NcclGroup>(*this, name, ranks, id);
}

std::shared_ptr<NcclChannel> OwnNcclPlane::make_channel(uint64_t key, int rank, int size) {
  const std::lock_guard lock(mutex_);
  if (is_aborted_) throw std::runtime_error("NCCL was ended after a failure");
  channels_.remove_if([](const auto& channel) { return channel->ends_until(Clock::time_point::min()); });
  channels_.push_back(NcclChannel::start(
      {.nccl = &nccl_, .device = device_, .watch = &world_.watch(), .key = key, .rank = rank, .size = size}));
  return channels_.back();
}

void OwnNcclPlane::break_off() noexcept {
  std::list<std::shared_ptr<NcclChannel>> channels;
  {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    channels.swap(channels_);
  }
  const auto until = Clock::now() + kAbortPatience;
  for (const auto& channel : channels) channel->ask_to_end();
  for (const auto& channel : channels) channel->break_off(until);
}

void OwnNcclPlane::close() {
  std::list<std::shared_ptr<NcclChannel>> channels;
  {
    const std::lock_guard lock(mutex_);
    channels = channels_;
  }
  for (const auto& channel : channels) channel->close_soon();
  const auto until = Clock::now() + world_.options().timeout;
  for (const auto& channel : channels) {
    if (channel->ends_until(until)) continue;
    throw std::runtime_error(fmt::format("NCCL did not end within {:g} s after everyone had come to the end of the run",
                                         std::chrono::duration<double>(world_.options().timeout).count()));
  }
}

}  // namespace weft
