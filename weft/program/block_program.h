#pragma once

#include "weft/program/module.h"
#include "weft/program/program.h"

namespace weft {

/// The data that has cosines and sines of every row.
inline constexpr const char* kRotaryTable = "rotary";

/// What goes through a module at once.
struct ProgramSizes {
  int64_t samples = 1;              ///< dim b: sequences, or images
  int64_t rows = 1;                 ///< dim s: tokens of each, in the module's own
  bool normalizes_experts = false;  ///< the weights of a row's experts sum to 1
  /// Shares of a packed product into which a gate and what it opens are divided, side by side; 0: every element is one.
  int64_t gate_shares = 0;
  bool has_rotary_tables = false;  ///< heads turn by cosines and sines that are given, not by angles
};

/// The program that a module's blocks declare: entry, layers as repeats, exit. Dims are b and s (rows), h (a row
/// between layers), k (heads, in groups that share a key), f (the MLP's width), e and c (experts and the rows of each),
/// v (entries of a table), t (rows that were merged or
/// added to), a (angles of a head). Fails for blocks that are no chain of known operators, with the operator's name.
Result<Program> program_of(const Module& module, const ProgramSizes& sizes, std::string name);

/// Only the layers of one kind, as many as the module has.
Result<Program> program_of_layers(const Module& module, size_t kind, const ProgramSizes& sizes, std::string name);

/// The first operators of one layer of a kind, without a repeat: it reads "x". Its rows are divided one by one, also
/// where the exit merges some: ranks that merge have whole rows.
Result<Program> program_of_layer(const Module& module, size_t kind, size_t num_ops, const ProgramSizes& sizes,
                                 std::string name);

}  // namespace weft
