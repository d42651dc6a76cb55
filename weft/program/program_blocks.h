#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/program/module.h"
#include "weft/program/program_features.h"
#include "weft/program/program_numbers.h"
#include "weft/program/run_strategy.h"

namespace weft {

/// The operators of one block of a program, as a program of their own without repeats, or those of a family's layer
/// (layer_program.h).
struct BlockProgram {
  Program program;
  std::optional<size_t> carried_in;   ///< the input that comes from the block before; nothing: it begins with data
  std::optional<size_t> carried_out;  ///< the value that goes to the next block, or the loss; nothing: there is none
  std::vector<Choice> choices;        ///< by operator: what it does on the tensor-parallel axis
  /// The same where rows between blocks are divided over that axis; empty: they never are.
  std::vector<Choice> divided = {};
  std::vector<AxisState> held;  ///< by value: how tensor-parallel ranks hold a weight; of others nothing is said
  size_t num_own = 0;           ///< operators of the program; one more may make rows whole for the next block
  size_t num_behind = 0;        ///< of the block's last operators, those that a layer's own code computes behind it
  ProgramRows rows;
  /// Of a layer with a strategy: operators that do something else than usual, "mlp.down cut s, out cut s"; "usual"
  /// where none does. Two strategies of a layer are the same where this is.
  std::string words = {};

  /// Whether it is a layer of a family, whose rows are packed sequences, and not a user's own.
  bool is_layer() const { return !divided.empty(); }
};

/// A program as a chain of blocks: the operators before its first repeat, each time of its repeats, the operators
/// behind the last. One without repeats is a single layer, whose last operators are the exit.
struct ProgramBlocks {
  BlockProgram entry;
  std::vector<BlockProgram> kinds;
  std::vector<size_t> layers;  ///< for each layer its index in kinds
  BlockProgram exit;
  bool marks_layers = false;  ///< the program has repeats
  ProgramFeatures features;   ///< of the whole program
};

/// Fails where more than one value goes from a block to the next, with the operator that reads it.
Result<ProgramBlocks> blocks_of(const Program& program);

/// The block with other choices for its own operators. What it gives the next block is whole in any case.
BlockProgram with_choices(BlockProgram block, std::vector<Choice> choices);

/// Of a block's operators the first ones, those that its program computes: none where it has no program, all of a
/// user's own block, those before its experts of a layer that has some. Everybody who goes through the operators of a
/// block asks here where its program ends.
size_t num_in_program(const Block& block);

/// Attention that has some rows of its sequences alone, as the block's choices say: the first one. Keys of the others
/// come over tensor-parallel ranks, which all have rows of the same sequences then.
std::optional<size_t> attention_of_some_rows(const BlockProgram& block, bool divides_rows);

/// Gives a block one more operator behind its own, which brings its rows into the layout that the next block takes.
void append_end(BlockProgram& block);

/// How a block runs on tensor-parallel ranks: as its choices say, with rows in and out that are whole or, along the dim
/// of samples (ProgramRows), divided. The mesh has one axis.
RunStrategy run_strategy(const BlockProgram& block, bool divides_rows = false);

}  // namespace weft
