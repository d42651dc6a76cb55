#pragma once

#include "weft/program/module.h"
#include "weft/program/program.h"
#include "weft/program/program_numbers.h"

namespace weft {

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
