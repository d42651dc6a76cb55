// How fast groups are. Started plainly, on threads:
//   1. all_reduce of 64 MiB on 2 ranks against the bound that memory bandwidth sets for its traffic (half wanted),
//   2. latency of an all_reduce of one number on 2 ranks (under 5 us wanted).
// Started by scripts/mpirun, on processes: all_reduce against the bare MPI_Allreduce (within 10 % wanted), and how much
// of an all_reduce is left to wait for after computing for as long as it takes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <mpi.h>
#include <thread>
#include <vector>

#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/comm/threads/run_threads.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int64_t kLarge = 64 << 20;

double seconds(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Buffer floats(std::vector<float>& values, int64_t count) {
  return {.data = values.data(), .count = count, .type = DataType::kFp32};
}

/// The ranks' buffers, for a loop that goes over both.
std::atomic<float*> shared_buffers[2];

/// What memory allows: each of the two threads reads one half of both buffers and writes the sums to both, in one loop
/// and without looking at the other.
double bound_s(World& world, std::vector<float>& own) {
  shared_buffers[world.rank()] = own.data();
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    world.all().barrier().wait();
    float* __restrict a = shared_buffers[0];
    float* __restrict b = shared_buffers[1];
    const size_t half = own.size() / 2, begin = static_cast<size_t>(world.rank()) * half;
    times.push_back(seconds([&] {
      for (size_t k = begin; k < begin + half; ++k) a[k] = b[k] = a[k] + b[k];
      world.all().barrier().wait();
    }));
  }
  return median(times);
}

void large_on_threads(World& world) {
  std::vector<float> a(kLarge / 4, 0.0f);
  std::vector<double> times;
  double bound = bound_s(world, a);
  for (int i = 0; i < 15; ++i) {
    world.all().barrier().wait();
    times.push_back(seconds([&] { world.all().all_reduce(floats(a, kLarge / 4), Reduction::kSum).wait(); }));
  }
  bound = (bound + bound_s(world, a)) / 2;
  if (world.rank() != 0) return;
  std::printf(
      "threads, 2 ranks, all_reduce of 64 MiB: %.2f ms; a loop over the same memory %.2f ms (%.1f GB/s): %.0f %%\n",
      1e3 * median(times), 1e3 * bound, 4.0 * static_cast<double>(kLarge) / bound / 1e9, 100 * bound / median(times));
}

void small_on_threads(World& world) {
  std::vector<float> value(1, 0.0f);
  std::vector<double> times;
  for (int round = 0; round < 21; ++round) {
    world.all().barrier().wait();
    times.push_back(seconds([&] {
      for (int i = 0; i < 2000; ++i) world.all().all_reduce(floats(value, 1), Reduction::kSum).wait();
    }));
  }
  if (world.rank() == 0) std::printf("threads, 2 ranks, all_reduce of 4 bytes: %.2f us\n", 1e6 * median(times) / 2000);
}

/// In turn, so that both see the same machine, and in many short rounds, so that others' turns on it spoil only some.
void against_bare_mpi(World& world, int64_t bytes, int repeats, int rounds) {
  std::vector<float> a(static_cast<size_t>(bytes / 4), 0.0f);
  std::vector<double> ours, bare;
  for (int round = 0; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    ours.push_back(seconds([&] {
      for (int i = 0; i < repeats; ++i) world.all().all_reduce(floats(a, bytes / 4), Reduction::kSum).wait();
    }));
    MPI_Barrier(MPI_COMM_WORLD);
    bare.push_back(seconds([&] {
      for (int i = 0; i < repeats; ++i) {
        MPI_Allreduce(MPI_IN_PLACE, a.data(), static_cast<int>(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      }
    }));
  }
  if (world.rank() != 0) return;
  std::printf("mpi, %ld ranks, all_reduce of %ld bytes: %.2f us, bare MPI_Allreduce %.2f us: %.2f times\n",
              static_cast<long>(world.size()), static_cast<long>(bytes), 1e6 * median(ours) / repeats,
              1e6 * median(bare) / repeats, median(ours) / median(bare));
}

void overlap_on_mpi(World& world) {
  std::vector<float> a(8 << 18, 0.0f);
  std::vector<double> alone, left;
  volatile double sink = 0;
  const auto compute = [&](double for_s) {
    const auto start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < for_s) {
      for (int k = 0; k < 1000; ++k) sink = sink + std::sqrt(static_cast<double>(k));
    }
  };
  for (int round = 0; round < 15; ++round) {
    world.all().barrier().wait();
    alone.push_back(seconds([&] { world.all().all_reduce(floats(a, 8 << 18), Reduction::kSum).wait(); }));
    world.all().barrier().wait();
    Work work = world.all().all_reduce(floats(a, 8 << 18), Reduction::kSum);
    compute(4 * median(alone));
    left.push_back(seconds([&] { work.wait(); }));
  }
  if (world.rank() != 0) return;
  std::printf(
      "mpi, %ld ranks, all_reduce of 8 MiB: %.2f ms alone, %.2f ms left to wait for after computing 4 times as long\n",
      static_cast<long>(world.size()), 1e3 * median(alone), 1e3 * median(left));
}

}  // namespace

int main() {
  try {
    if (detect_launch().kind == Launch::Kind::kThreads) {
      (void)run_thread_ranks(2, {}, large_on_threads);
      (void)run_thread_ranks(2, {}, small_on_threads);
      return 0;
    }
    const auto error = run_ranks({.mpi_library = WEFT_MPI_LIBRARY}, [](World& world) {
      against_bare_mpi(world, kLarge, 1, 15);
      against_bare_mpi(world, 1 << 20, 5, 401);
      against_bare_mpi(world, 64 << 10, 20, 501);
      against_bare_mpi(world, 4, 100, 1001);
      overlap_on_mpi(world);
    });
    if (error) std::printf("%s\n", error->message().c_str());
    return error ? 2 : 0;
  } catch (const RankFailure& failure) {
    if (failure.should_print()) std::printf("%s\n", failure.what());
    return 1;
  }
}
