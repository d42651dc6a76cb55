#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/program/block_program.h"
#include "weft/program/program_text.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

int64_t num_weight_elements(const Program& program) {
  int64_t total = 0;
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (program.values[value].role != ProgramValue::Role::kWeight) continue;
    const auto repeat = program.repeat_of(program.readers_of(value).front());
    total += program.num_elements(value) * (repeat ? program.repeats[*repeat].count : 1);
  }
  return total;
}

TEST(ModelPrograms, HaveTheWeightsOfTheirModules) {
  const Scenarios scenarios(source_tree() / "scenarios");
  int derived = 0;
  for (const std::string& name : scenarios.names("models")) {
    const Model model = *scenarios.model(name);
    for (const Module& module : model.modules) {
      // Convolutions, and patches with learned positions, are refused by name (below).
      const bool has_places = module.kind == ModuleKind::kVision && find_op(module.entry, "positions") != nullptr;
      if (module.kind == ModuleKind::kAudio || has_places) continue;
      const Result<Program> program = program_of(module, {.samples = 4, .rows = 1024}, name);
      ASSERT_TRUE(program) << name << " " << name_of(module.kind) << ": " << program.error().message();
      EXPECT_EQ(num_weight_elements(*program), num_parameters(module)) << name << " " << name_of(module.kind);
      const Result<Program> again = parse_program(program_text(*program), "written");
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(*again, *program);
      ++derived;
    }
  }
  EXPECT_GE(derived, 20);
}

TEST(ModelPrograms, WhatIsNoChainOfKnownOperatorsIsNamed) {
  const Model model = *Scenarios(source_tree() / "scenarios").model("qwen2.5-omni-7b");
  const Result<Program> program = program_of(*model.find(ModuleKind::kAudio), {.samples = 1, .rows = 1500}, "omni");
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message().find("convolution"), std::string::npos) << program.error().message();
  const Model tiles = *Scenarios(source_tree() / "scenarios").model("internvl3-8b");
  const Result<Program> tower = program_of(*tiles.find(ModuleKind::kVision), {.samples = 1, .rows = 1025}, "tiles");
  ASSERT_FALSE(tower);
  EXPECT_NE(tower.error().message().find("patch_embedding"), std::string::npos) << tower.error().message();
}

}  // namespace
}  // namespace weft
