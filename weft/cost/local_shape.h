#pragma once

#include "weft/cost/block_setting.h"
#include "weft/meaning/op_share.h"

namespace weft {

inline constexpr double kFp32Bytes = 4;
/// Dropout's mask, for each element.
inline constexpr double kMaskBytes = 1;

/// By how many an operator's rows are divided besides cp: sequence parallelism divides those outside tensor-parallel
/// Whether sequence parallelism leaves its rows whole: those of a loss, and of experts that tensor parallelism cuts.
bool has_whole_rows(const Op& op, const BlockSetting& setting);
/// regions.
int64_t row_share(const Op& op, const BlockSetting& setting);

/// By how many the features of an operator inside a tensor-parallel region are divided.
int64_t feature_share(const Op& op, const BlockSetting& setting);

}  // namespace weft
