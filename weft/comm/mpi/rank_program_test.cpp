// A program for the tests of ranks that end: rank_program MODE RANK STEP [SEED]. All ranks go through random
// operations; at that step, that rank does what the mode says. Prints what a user would see, as the command line does.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>

#include "tests/support/source_tree.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"

namespace {

using namespace weft;

struct Returned {};

void end_somehow(const std::string& mode, World& world) {
  if (mode == "throw") throw std::runtime_error("out of luck");
  if (mode == "exit") _exit(3);
  if (mode == "exit0") _exit(0);
  if (mode == "kill") raise(SIGKILL);
  if (mode == "return") throw Returned{};
  if (mode == "stay") std::this_thread::sleep_for(std::chrono::seconds(60));
  if (mode == "misuse") world.all().send({nullptr, 5, DataType::kFp32}, 0).wait();
  if (mode == "disagree") {
    float value = 0;
    world.all().broadcast({&value, 1, DataType::kFp32}, 0).wait();
  }
}

Buffer floats(std::vector<float>& values) {
  return {.data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kFp32};
}

/// The ranks behind the second have come to their end while its message is still on its way.
void send_late(World& world) {
  std::vector<float> values(1'000'000);
  if (world.rank() == 0) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    world.all().recv(floats(values), 1).wait();
  }
  if (world.rank() == 1) world.all().send(floats(values), 0).wait();
}

/// Leaves word of the processes, for the tests that kill them from outside.
void write_pid(World& world) {
  if (const char* folder = std::getenv("WEFT_TEST_PIDS")) {
    std::ofstream(std::filesystem::path(folder) / std::to_string(world.rank())) << getpid();
  }
}

void work(World& world, const std::string& mode, int64_t rank, int step_to_end, uint32_t seed) {
  write_pid(world);
  const int64_t size = world.size(), me = world.rank();
  Group& all = world.all();
  std::vector<int64_t> half;
  for (int64_t r = me % 2; r < size; r += 2) half.push_back(r);
  Group group = *world.group("half", half);
  // The same operations on all ranks; what a rank does between them is its own.
  std::mt19937 random(seed), own(seed + 1 + static_cast<uint32_t>(me));
  for (int step = 0;; ++step) {
    const bool ends = me == rank && step == step_to_end;
    const int place = static_cast<int>(own() % 3);
    if (ends && place == 0) end_somehow(mode, world);
    if (mode == "compute" && me != rank && step == step_to_end) std::this_thread::sleep_for(std::chrono::seconds(60));
    if (mode == "compute" && ends) raise(SIGKILL);
    const size_t count = random() % 4 == 0 ? 200'000 : random() % 100 + 1;
    std::vector<float> a(count, 1), b(count, 1), c(count), d(count * static_cast<size_t>(size)), e(count);
    std::vector<Work> works;
    works.push_back(all.all_reduce(floats(a), Reduction::kMax));
    works.push_back(group.all_reduce(floats(b), Reduction::kSum));
    if (ends && place == 1) end_somehow(mode, world);
    works.push_back(all.send(floats(c), (me + 1) % size));
    works.push_back(all.recv(floats(e), (me + size - 1) % size));
    works.push_back(all.all_gather(floats(c), floats(d)));
    for (Work& work : works) work.wait();
    if (ends && place == 2) end_somehow(mode, world);
    all.barrier().wait();
    if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const std::string mode = argv[1];
  const int64_t rank = std::atoll(argv[2]);
  const int step = std::atoi(argv[3]);
  const auto seed = static_cast<uint32_t>(argc > 4 ? std::atoi(argv[4]) : 1);
  const auto show = [](const std::string& message) { std::fprintf(stderr, "weft: %s\n", message.c_str()); };
  const Result<CommOptions> comm =
      comm_options_from_environment({.timeout = std::chrono::seconds(30), .is_checked = true});
  try {
    if (!comm) {
      show(comm.error().message());
      return 2;
    }
    const int64_t needed = mode == "needs" ? rank : 0;
    const auto error = run_ranks({.size = needed,
                                  .comm = *comm,
                                  .mpi_library = build_tree() / "libweft_mpi.so",
                                  .nccl_library = build_tree() / "libweft_nccl.so",
                                  .report = show},
                                 [&](World& world) {
                                   try {
                                     if (mode == "late") send_late(world);
                                     if (mode != "needs" && mode != "late") work(world, mode, rank, step, seed);
                                   } catch (const Returned&) {
                                   }
                                 });
    if (error && detect_launch().rank == 0) show(error->message());
    return error ? 2 : 0;
  } catch (const RankFailure& failure) {
    if (failure.should_print()) show(failure.what());
    return 1;
  }
}
