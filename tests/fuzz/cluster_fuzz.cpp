#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/spec/cluster.h"

using namespace weft;

/// A cluster that is read has devices with usable memory and links with bandwidth.
int weft::fuzz_cluster(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Cluster> cluster = read_cluster(*document, "input");
  if (!cluster) {
    claim_good_message(cluster);
    return 0;
  }
  claim(cluster->num_devices() >= 1 && cluster->cards_per_node >= 1);
  claim(cluster->device.memory_gib > cluster->device.reserved_memory_gib && cluster->device.reserved_memory_gib >= 0);
  claim(cluster->within_node.bandwidth_gb_per_s > 0 && cluster->between_nodes.latency_us >= 0);
  claim(!cluster->device.matrix_tflops.empty());
  return 0;
}
