#include <cmath>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/validate/measurements.h"

using namespace weft;

/// A table that is read has rows with possible values; rows that contradict themselves are refused as plans.
int weft::fuzz_measurements(const uint8_t* data, size_t size) {
  if (size > 1 << 14) return 0;
  const Result<std::vector<TrainingRun>> runs = parse_measurements(as_text(data, size), "input");
  if (!runs) {
    claim_good_message(runs);
    return 0;
  }
  claim(!runs->empty());
  Cluster cluster{.name = "c", .nodes = 1, .devices_per_node = 8, .cards_per_node = 8};
  cluster.device = {.name = "d", .memory_gib = 80, .memory_bandwidth_gb_per_s = 2000, .matrix_tflops = {}};
  cluster.device.matrix_tflops[Precision::kBf16] = 300;
  for (const TrainingRun& run : *runs) {
    claim(run.tp >= 1 && run.dp >= 1 && run.pp >= 1 && run.vpp >= 1 && run.zero >= 0 && run.zero <= 3);
    claim(std::isfinite(run.measured_ms) && run.measured_ms > 0);
    // Large ones are slow, and no different.
    if (run.num_devices > 256 || run.num_layers > 256 || run.global_batch > 256 || run.vpp > 16) continue;
    const Result<Plan> plan = plan_of(run, cluster);
    if (!plan) {
      claim_good_message(plan);
    } else {
      claim(plan->world_size == run.num_devices);
    }
  }
  return 0;
}
