#pragma once

#include "weft/exchange/export.h"

namespace weft {

// One function a target, each in a file of its name. The plan is legal.

/// The argument line of Megatron-LM's training scripts.
Result<std::vector<ExportedFile>> export_megatron(const Plan& plan);

/// MindSpeed-MM's search result for one pipeline of vision and language layers, or its per-module settings for encoders
/// with degrees of their own.
Result<std::vector<ExportedFile>> export_mindspeed_mm(const Plan& plan);

/// The parallel part of a MindFormers YAML file.
Result<std::vector<ExportedFile>> export_mindformers(const Plan& plan);

/// The actor's part of a MindSpeed-RL YAML file.
Result<std::vector<ExportedFile>> export_mindspeed_rl(const Plan& plan);

/// The parallel part of a torchtitan job file (TOML).
Result<std::vector<ExportedFile>> export_torchtitan(const Plan& plan);

}  // namespace weft
