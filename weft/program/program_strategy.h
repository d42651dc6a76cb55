#pragma once

#include <map>
#include <string>

#include "weft/program/module.h"
#include "weft/program/strategy_entries.h"

namespace weft {

/// What operators do on the tensor-parallel axis where that is not the usual: by kind of block (its name: entry, layer,
/// exit) entries for its operators. Operators that no entry fits do the usual. Of a family's model only layers are
/// named, and of a layer with experts the operators before these.
using BlockEntries = std::map<std::string, std::vector<StrategyEntry>>;

/// The module with such choices: what its blocks compute and communicate, and which part of its weights a rank holds.
/// Fails for a kind of block that it has not, for a pattern that fits an operator behind a layer's program, and as
/// layer_program and pins_of do, with the field below the strategy.
Result<Module> with_strategy(const Module& module, const BlockEntries& blocks, int64_t tp);

/// A layer of a family as it is without a strategy; other blocks stay what they are.
Block without_strategy(Block block);

/// The inverse: of every operator with another choice than `usual` has, its choice in words. Both are of one program.
BlockEntries entries_of(const Module& module, const Module& usual);

/// Has blocks of a program hold their weights as their operators read them: a part where a choice cuts the weight, all
/// of it otherwise. A tied table lies as the entry reads it.
void hold_weights(Module& module);

/// The kinds of a module's blocks by their names, the entry first.
std::vector<const Block*> kinds_of_blocks(const Module& module);

}  // namespace weft
