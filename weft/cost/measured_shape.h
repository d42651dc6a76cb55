#pragma once

#include <optional>

#include "weft/cost/block_setting.h"
#include "weft/profile/profile.h"
#include "weft/spec/segments.h"

namespace weft {

/// By the name that measurements give it; null where the module has none of that name.
const Block* find_block(const Module& module, const std::string& name);

/// What a shape is of: the module's block, with the strategy that it has, or as it is without one. Nothing where the
/// module has no such block, or its layer another strategy.
std::optional<Block> block_of(const Module& module, const BlockShape& shape);

/// Whether rows of the block attend to one another.
bool has_attention(const Block& block);

/// What one rank runs of a block: nothing is left of a setting that the block does not feel, so that shapes which mean
/// the same work are equal. Context parallelism of a block without attention is only fewer tokens.
BlockShape shape_of(ModuleKind module, const Block& block, const BlockSetting& setting, double tokens,
                    double sequence_tokens);
/// The same of a shape that was measured.
BlockShape with_what_counts(const Block& block, BlockShape shape);

/// Tokens in all, and the length of a sequence that stands for all of them: weighed by its tokens, as attention does.
struct Load {
  double tokens = 0;
  double length = 0;
};
Load load_of(const Segments& segments);

}  // namespace weft
