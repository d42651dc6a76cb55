#pragma once

#include <memory>
#include <vector>

#include "weft/cost/attended_rows.h"
#include "weft/meaning/rank_groups.h"
#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"

namespace weft {

/// What one rank has of a module's rows in a microbatch.
struct ModuleRows {
  int64_t between = 0;      ///< rows between blocks
  int64_t whole = 0;        ///< inside tensor-parallel regions
  int64_t out_between = 0;  ///< the same of what the module gives
  int64_t out_whole = 0;
  int64_t frames = 0;        ///< that the first convolution of audio is run for
  int64_t frames_given = 0;  ///< to this rank: those that all tensor-parallel ranks' rows see
  int64_t targets = 0;       ///< of the llm
  AttendedRows segments;
  std::optional<AttendedRows> windows;           ///< in layers with windows
  std::map<ModuleKind, int64_t> needed;          ///< rows of encoders that take the places of tokens here
  std::map<ModuleKind, int64_t> needed_between;  ///< of them, those of tokens that the rank has between blocks
};

ModuleRows rows_of(const Plan& plan, const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load);
/// The same of what an encoder works on at once.
ModuleRows encoder_rows(const Plan& plan, const ModulePlan& module, const RankPlace& place, const EncoderLoad& load);

}  // namespace weft
