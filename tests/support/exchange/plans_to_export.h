#pragma once

#include <filesystem>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/exchange/export.h"
#include "weft/plan/plan_json.h"

// What the tests of this folder share: plans to start from, and an export's outcome as one text.

namespace weft {

inline Plan shipped_plan(const std::string& name) {
  return *read_plan_file(source_tree() / "scenarios/plans" / (name + ".json"));
}

inline ModulePlan& module_of(Plan& plan, ModuleKind kind) {
  for (ModulePlan& module : plan.modules) {
    if (module.kind == kind) return module;
  }
  throw std::logic_error("the plan has no such module");
}

inline ModulePlan& llm_of(Plan& plan) {
  return module_of(plan, ModuleKind::kLlm);
}

inline std::vector<int64_t> first_ranks(int64_t count) {
  std::vector<int64_t> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Sets degrees and layers; everything else that has to fit is made to.
inline void reshape(Plan& plan, int64_t tp, int64_t cp, int64_t pp, int64_t dp,
                    std::vector<std::vector<int64_t>> layers) {
  ModulePlan& llm = llm_of(plan);
  llm.tp = tp, llm.cp = cp, llm.pp = pp, llm.dp = dp;
  llm.cp_ulysses = 1;
  llm.vpp = static_cast<int64_t>(layers.front().size());
  llm.layers = std::move(layers);
  llm.recompute.clear();
  llm.sequence_parallel = tp > 1;
  llm.ranks = first_ranks(tp * cp * pp * dp);
  plan.schedule.name = llm.vpp > 1 ? "interleaved_1f1b" : "1f1b";
  plan.world_size = static_cast<int64_t>(llm.ranks.size());
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.workload.global_batch_samples = plan.schedule.mbs * plan.schedule.microbatches * dp;
}

/// A text-only plan: Llama 3 8B, tp 2, pp 2, dp 2, 1F1B, ZeRO 1.
inline Plan llama_plan() {
  Plan plan = shipped_plan("llama3-8b_gpipe_tp2_pp2_dp2");
  plan.schedule.name = "1f1b";
  return plan;
}

/// The files' texts, or the message and its details.
inline std::string outcome(const Plan& plan, Target target) {
  const auto files = export_plan(plan, target);
  if (!files) return files.error().message() + "\n" + files.error().details;
  std::string text;
  for (const ExportedFile& file : *files) text += file.text;
  return text;
}

/// Expects the one refusal of a plan, as it starts: field and reason.
inline void expect_refused(const Plan& plan, Target target, const std::string& message) {
  const auto files = export_plan(plan, target);
  ASSERT_FALSE(files.ok()) << "exported, but expected: " << message << "\n" << files->front().text;
  EXPECT_EQ(files.error().message().substr(0, message.size()), message) << files.error().details;
  EXPECT_EQ(files.error().kind, ErrorKind::kInput);
  EXPECT_NE(files.error().advice, "");
}

}  // namespace weft
