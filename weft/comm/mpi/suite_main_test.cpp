// The suite on ranks that are processes, as mpirun or a torchrun-style launcher starts them, or on one thread: mpirun
// -n N weft_comm_mpi_suite [--tiny] [--unchecked] [--gpu] [--sums-differ]. Every process runs the same tests in step.
// With
// --tiny all thresholds are so small that every way of doing things is taken; with --gpu all memory is a GPU's, and
// without one the program says so and ends with 77; with --sums-differ sums need not be in rank order, as those of NCCL
// are not.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/source_tree.h"
#include "weft/comm/cuda/gpu_place.h"
#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/comm/suite.h"

namespace weft::suite {
namespace {

World* current_world = nullptr;
bool uses_gpu = false, sums_differ = false;
std::shared_ptr<GpuPlace> place;

/// What ctest takes for "skipped".
constexpr int kSkipped = 77;

/// Only rank 0 tells of what passes; everyone tells of failures.
class OnlyFailures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %ld: %s:%d: %s\n", static_cast<long>(current_world->rank()),
                 result.file_name() == nullptr ? "?" : result.file_name(), result.line_number(), result.summary());
  }
};

}  // namespace

std::vector<Ranks> all_ranks() {
  const Launch launch = detect_launch();
  std::string name = launch.kind == Launch::Kind::kEnvironment ? "Nccl"
                     : launch.kind == Launch::Kind::kMpi       ? "Mpi"
                                                               : "OneThread";
  if (uses_gpu) name += "OnGpu";
  return {{.name = name,
           .size = std::max<int64_t>(launch.size, 1),
           .run =
               [](const auto& body) {
                 current_place = place.get();
                 body(*current_world);
                 current_world->all().barrier().wait();
               },
           .sums_in_rank_order = !sums_differ}};
}

void tell_skipped(const std::string& reason) {
  std::fprintf(stderr, "skipped: %s\n", reason.c_str());
}

}  // namespace weft::suite

int main(int argc, char** argv) {
  using namespace weft;
  for (int i = 1; i < argc; ++i) {
    suite::uses_gpu = suite::uses_gpu || std::strcmp(argv[i], "--gpu") == 0;
    suite::sums_differ = suite::sums_differ || std::strcmp(argv[i], "--sums-differ") == 0;
  }
  const bool needs_gpu = suite::uses_gpu || detect_launch().kind == Launch::Kind::kEnvironment;
  if (const auto driver = cuda_driver(); needs_gpu && !driver) {
    // A stand-in is there on every machine: one that cannot be used is a fault.
    const bool has_stand_in = std::getenv("WEFT_STAND_IN_GPUS") != nullptr;
    std::fprintf(stderr, "%s, there is no GPU: %s\n", has_stand_in ? "failed" : "skipped",
                 driver.error().message().c_str());
    return has_stand_in ? 1 : suite::kSkipped;
  }
  testing::InitGoogleTest(&argc, argv);
  RunOptions options{.comm = {.timeout = std::chrono::seconds(60), .is_checked = true},
                     .mpi_library = build_tree() / "libweft_mpi.so",
                     .nccl_library = build_tree() / "libweft_nccl.so",
                     .report = [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); }};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) {
      suite::most_elements = 3001;  // still dozens of the segments below
      options.mpi_tuning = {.most_message_bytes = 100, .segment_bytes = 64, .small_bytes = 16, .small_pair_bytes = 16};
    }
    if (std::strcmp(argv[i], "--unchecked") == 0) options.comm.is_checked = false;
  }
  int status = 1;
  try {
    const auto error = run_ranks(options, [&](World& world) {
      suite::current_world = &world;
      if (suite::uses_gpu) {
        const Device gpu = world.gpu().value_or(Device{DeviceKind::kCuda, 0});
        suite::place = *suite::gpu_place(gpu.index);
        std::fprintf(stderr, "rank %ld: %s on %s\n", static_cast<long>(world.rank()),
                     std::string(world.backend_name()).c_str(), text(gpu).c_str());
      }
      if (world.rank() != 0) {
        auto& listeners = testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new suite::OnlyFailures);
      }
      status = RUN_ALL_TESTS();
      suite::place.reset();
    });
    if (error) {
      std::fprintf(stderr, "%s\n", error->message().c_str());
      return 2;
    }
  } catch (const RankFailure& failure) {
    if (failure.should_print()) std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
  return status;
}
