// The suite on MPI ranks: mpirun -n N weft_comm_mpi_test [--tiny]. Every process runs the same tests in step. With
// --tiny all thresholds are so small that every way of doing things is taken.
#include <cstdio>
#include <cstring>

#include "weft/comm/failure.h"
#include "weft/comm/run_ranks.h"
#include "weft/comm/suite.h"

namespace weft::suite {
namespace {

World* current_world = nullptr;

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
  return {{.name = "Mpi", .size = launch.size, .run = [](const auto& body) {
             body(*current_world);
             current_world->all().barrier().wait();
           }}};
}

}  // namespace weft::suite

int main(int argc, char** argv) {
  using namespace weft;
  testing::InitGoogleTest(&argc, argv);
  RunOptions options{.comm = {.timeout = std::chrono::seconds(60), .is_checked = true},
                     .mpi_library = WEFT_MPI_LIBRARY,
                     .report = [](const std::string& message) { std::fprintf(stderr, "%s\n", message.c_str()); }};
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) {
      options.mpi_tuning = {.most_message_bytes = 100, .segment_bytes = 64, .small_bytes = 16, .small_pair_bytes = 16};
    }
    if (std::strcmp(argv[i], "--unchecked") == 0) options.comm.is_checked = false;
  }
  int status = 1;
  try {
    const auto error = run_ranks(options, [&](World& world) {
      suite::current_world = &world;
      if (world.rank() != 0) {
        auto& listeners = testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new suite::OnlyFailures);
      }
      status = RUN_ALL_TESTS();
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
