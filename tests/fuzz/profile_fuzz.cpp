#include <cmath>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/cost/measured_links.h"

using namespace weft;

/// A profile that is read is written and read back the same, and leaves a cluster with links that can be used.
int weft::fuzz_profile(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<Profile> profile = read_profile(*document);
  if (!profile) {
    claim_good_message(profile);
    return 0;
  }
  const Result<Profile> again = read_profile({.source = "again", .root = to_json(*profile)});
  claim(again.ok() && to_json(*again) == to_json(*profile));
  for (const BlockMeasurement& block : profile->blocks)
    claim(block.shape.tokens >= block.shape.sequence_tokens && block.shape.sequence_tokens >= 1 &&
          block.forward_ms > 0);
  Cluster cluster{.within_node = {.bandwidth_gb_per_s = 300, .latency_us = 3},
                  .between_nodes = {.bandwidth_gb_per_s = 25, .latency_us = 5}};
  apply_links(*profile, cluster);
  for (const double share : {cluster.efficiency.within_node, cluster.efficiency.between_nodes})
    claim(share > 0 && share <= 1);
  for (const double latency_us : {cluster.within_node.latency_us, cluster.between_nodes.latency_us})
    claim(std::isfinite(latency_us) && latency_us >= 0);
  return 0;
}
