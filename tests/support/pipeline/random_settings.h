#pragma once

#include <array>
#include <random>

#include "weft/plan/plan.h"
#include "weft/program/adapter_ops.h"

namespace weft {

/// What random_plan leaves as it is: precisions, sizes of buckets, overlap, values that ZeRO 3 keeps, logits.
inline void draw_settings(uint64_t seed, Plan& plan) {
  std::mt19937_64 random(seed);
  constexpr auto kFp32 = Precision::kFp32, kBf16 = Precision::kBf16, kFp64 = Precision::kFp64;
  constexpr std::array<PrecisionPlan, 4> kPrecisions = {
      {{kFp64, kFp64, kFp64}, {kFp32, kFp32, kFp32}, {kBf16, kFp32, kFp32}, {kBf16, kFp32, kBf16}}};
  plan.precision = kPrecisions[random() % kPrecisions.size()];
  plan.buckets_mb = std::array{64.0, 0.05, 0.002}[random() % 3];
  plan.overlap_dp = random() % 4 != 0;
  for (ModulePlan& module : plan.modules) module.zero_keep_gathered = module.zero == 3 && random() % 2 == 0;
  // A head with an adapter keeps its logits.
  ModulePlan& llm = plan.modules.back();
  llm.recompute_logits = random() % 3 == 0 && !has_adapters(plan.model.find(llm.kind)->exit);
}

}  // namespace weft
