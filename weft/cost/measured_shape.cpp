#include "weft/cost/measured_shape.h"

#include <algorithm>

#include "weft/base/as_double.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_strategy.h"

namespace weft {
namespace {

/// Nothing without one. Blocks of users' programs are not measured as blocks.
std::string strategy_of(const Block& block) {
  return block.program && block.program->is_layer() ? block.program->words : std::string();
}

bool has_experts(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) {
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    return matmul != nullptr && matmul->experts > 1;
  });
}

}  // namespace

const Block* find_block(const Module& module, const std::string& name) {
  if (module.entry.name == name) return &module.entry;
  if (module.exit.name == name) return &module.exit;
  for (const Block& kind : module.distinct_layers) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::optional<Block> block_of(const Module& module, const BlockShape& shape) {
  const Block* block = find_block(module, shape.block);
  if (block == nullptr) return std::nullopt;
  if (shape.strategy.empty()) return without_strategy(*block);
  return strategy_of(*block) == shape.strategy ? std::optional(*block) : std::nullopt;
}

bool has_attention(const Block& block) {
  return std::any_of(block.ops.begin(), block.ops.end(),
                     [](const Op& op) { return std::holds_alternative<Attention>(op.shape); });
}

BlockShape with_what_counts(const Block& block, BlockShape shape) {
  if (!has_attention(block)) {
    shape.tokens /= as_double(shape.cp);
    shape.sequence_tokens = shape.tokens;
    shape.cp = 1;
    shape.attention = AttentionKernel::kFused;
  }
  if (!has_experts(block)) shape.ep = 1;
  if (shape.cp == 1) shape.cp_ulysses = 1;
  if (shape.tp == 1) shape.sequence_parallel = false;
  if (shape.tp == 1 || !has_experts(block)) shape.experts_over_tp = false;
  return shape;
}

BlockShape shape_of(ModuleKind module, const Block& block, const BlockSetting& setting, double tokens,
                    double sequence_tokens) {
  return with_what_counts(block, {.module = module,
                                  .block = block.name,
                                  .strategy = strategy_of(block),
                                  .tp = setting.tp,
                                  .cp = setting.cp,
                                  .cp_ulysses = setting.cp_ulysses,
                                  .ep = setting.ep,
                                  .sequence_parallel = setting.sequence_parallel,
                                  .experts_over_tp = setting.experts_over_tp,
                                  .attention = setting.attention,
                                  .tokens = tokens,
                                  .sequence_tokens = sequence_tokens});
}

Load load_of(const Segments& segments) {
  Load load;
  double squares = 0;
  for (const Segment& segment : segments) {
    load.tokens += segment.count * segment.length;
    squares += segment.count * segment.length * segment.length;
  }
  load.length = load.tokens > 0 ? squares / load.tokens : 0;
  return load;
}

}  // namespace weft
