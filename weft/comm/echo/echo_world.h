#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "weft/comm/world.h"

namespace weft {

/// What an echo has copied so far, to be left out where blocks are measured without communication.
struct EchoCopies {
  double host_ms = 0;     ///< of the host's memory
  int64_t gpu_bytes = 0;  ///< of a GPU's memory, each read and written once
};

/// One rank of a world in which nobody else is, and the others do as this one does: a sum is its own values, a gather
/// its own part over and over, a scatter its own part, what comes from a rank is what went to it. Messages from others
/// are zeros. So shapes are those of a rank of any plan, on one device and at nearly no cost. Several threads of the
/// rank may use it, as of every world.
class EchoWorld {
 public:
  /// `meet` is called whenever an operation of a group of several ranks is waited for. Where threads measure the same
  /// block at once and meet there, each waits for the slowest, as ranks of tensor parallelism do in every layer.
  EchoWorld(int64_t rank, int64_t size, std::function<void()> meet = {});

  World& world() { return *world_; }
  EchoCopies copies() const;

  /// What all threads count up.
  struct Counts {
    std::atomic<int64_t> host_ns{0};
    std::atomic<int64_t> gpu_bytes{0};
  };

 private:
  std::shared_ptr<Counts> counts_;
  std::unique_ptr<World> world_;
};

}  // namespace weft
