#pragma once

#include "weft/program/module.h"
#include "weft/program/program_ops.h"

namespace weft {

/// A tensor that comes with the data, as a program names it.
struct NamedInput {
  std::string name;
  std::vector<int64_t> shape;          ///< of a sample
  std::vector<std::string> dims;       ///< what the program calls them
  std::optional<int64_t> num_entries;  ///< it has whole numbers below this; nothing: any numbers
  bool may_be_negative = false;        ///< targets, where a row has none

  int64_t num_elements() const;
};

/// What training a program takes besides its blocks.
struct ProgramNumbers {
  ProgramRows rows;
  bool marks_layers = false;       ///< else it is one block
  std::vector<NamedInput> inputs;  ///< in the order of the program
  std::optional<size_t> targets;   ///< the input whose numbers from 0 on are counted; nothing: every sample has as many
  int64_t targets_per_sample = 0;  ///< where none is: elements that the loss is a sum of
};

/// A program as a model: one module, whose blocks it computes.
struct ProgramModel {
  Module module;
  ProgramNumbers numbers;
  bool is_tied = false;  ///< the exit reads the entry's table
};

/// Fails, with the operator's name, for a program that cannot be trained: one without a loss, with data that have no
/// dim of samples, or with operators that no operator of a block stands for.
Result<ProgramModel> model_of(const Program& program);

/// The name of what computes such a module.
inline constexpr const char* kProgramNetwork = "program";

}  // namespace weft
