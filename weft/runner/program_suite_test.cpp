// Random programs by random strategies, against one rank. all_ranks() says on which ranks.
#include "tests/support/first_seed.h"
#include "tests/support/runner/program_runs.h"

namespace weft {
namespace {

class Programs : public OnTensorRanks {};
INSTANTIATE_TEST_SUITE_P(Runner, Programs, testing::ValuesIn(suite::all_ranks()), suite::name_of_ranks);

/// All ranks of a world, on axes of two wherever that is possible.
Mesh mesh_of(int64_t size) {
  std::vector<Axis> axes;
  for (const char* name : {"tp", "cp", "dp"}) {
    const int64_t next = size % 2 == 0 && axes.size() < 2 ? 2 : size;
    axes.push_back({name, next});
    size /= next;
  }
  return *Mesh::contiguous(axes);
}

TEST_P(Programs, RandomStrategiesAreOneRanks) {
  const uint64_t first = first_seed(5000), count = some_of(60);
  run([&](World& world) {
    const Mesh mesh = mesh_of(world.size());
    for (uint64_t seed = first; seed < first + count; ++seed) {
      const Program program = RandomProgram(seed).make();
      Random random(seed);
      const RunStrategy strategy = random_strategy(program, mesh.grid(), random);
      RunVariant variant{.splits_backward = seed % 2 == 0, .in_flight = 2};
      expect_like_one_rank(world, mesh, program, strategy, 1000 * seed, {variant});
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "seed " << seed;
        break;
      }
    }
  });
  RecordProperty("strategies", static_cast<int>(count));
}

}  // namespace
}  // namespace weft
