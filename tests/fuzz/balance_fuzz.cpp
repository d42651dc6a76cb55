#include <cmath>

#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "weft/search/balance.h"

using namespace weft;

/// What is read can be solved or is refused with a reason, and a solution places every block within the memory limit.
int weft::fuzz_balance(const uint8_t* data, size_t size) {
  const Result<Document> document = document_of(data, size);
  if (!document) return 0;
  const Result<BalanceCosts> costs = read_balance_costs(*document);
  if (!costs) {
    claim_good_message(costs);
    return 0;
  }
  // Larger ones are no different, only slower.
  if (costs->num_blocks() > 120 || costs->num_stages() * costs->shape.microbatches > 4096) return 0;
  const Result<BalancedPipeline> found = balance(*costs, {.time_limit_s = 0.05});
  if (!found) {
    claim_good_message(found);
    claim(found.error().kind == ErrorKind::kJob);
    return 0;
  }
  int32_t num_blocks = 0;
  for (const BalancedStage& stage : found->stages) {
    for (size_t kind = 0; kind < stage.blocks.size(); ++kind) {
      num_blocks += stage.blocks[kind];
      claim(stage.recomputed[kind] >= 0 && stage.recomputed[kind] <= stage.blocks[kind]);
    }
  }
  claim(num_blocks == costs->num_blocks());
  for (const double gib : found->memory_gib) claim(gib <= costs->memory_gib * (1 + 1e-6) + 1e-6);
  claim(std::isfinite(found->makespan_ms) && found->bound_ms <= found->makespan_ms);
  return 0;
}
