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

/// Of biases that some of a product's parts lack: zeros, which lie beside the others.
int64_t num_zeros(const Module& module) {
  int64_t total = 0;
  for (int64_t place = 0; place < num_blocks(module); ++place) {
    for (const Op& op : block_at(module, place).ops) {
      const auto* product = std::get_if<Matmul>(&op.shape);
      if (product != nullptr && product->bias_elements > 0) total += product->out - product->bias_elements;
    }
  }
  return total;
}

TEST(ModelPrograms, HaveTheWeightsOfTheirModules) {
  const Scenarios scenarios(source_tree() / "scenarios");
  int derived = 0;
  for (const std::string& name : scenarios.names("models")) {
    const Model model = *scenarios.model(name);
    for (const Module& module : model.modules) {
      const Result<Program> program = program_of(module, {.samples = 4, .rows = 1024}, name);
      ASSERT_TRUE(program) << name << " " << name_of(module.kind) << ": " << program.error().message();
      EXPECT_EQ(num_weight_elements(*program), num_parameters(module) + num_zeros(module))
          << name << " " << name_of(module.kind);
      const Result<Program> again = parse_program(program_text(*program), "written");
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(*again, *program);
      ++derived;
    }
  }
  EXPECT_GE(derived, 31);
}

Program program_of_module(const std::string& model, ModuleKind kind, int64_t rows) {
  const Model read = *Scenarios(source_tree() / "scenarios").model(model);
  return *program_of(*read.find(kind), {.samples = 2, .rows = rows}, model);
}

const ProgramValue& value_of(const Program& program, const std::string& name) {
  return program.values.at(*program.find_value(name));
}

int64_t rows_of(const Program& program, const std::string& value) {
  return program.dims[value_of(program, value).dims.at(1)].length;
}

TEST(ModelPrograms, SoundIsFoldedConvolvedAndPooled) {
  const Program program = program_of_module("qwen2.5-omni-7b", ModuleKind::kAudio, 1500);
  EXPECT_EQ(rows_of(program, "rows"), 3000);
  EXPECT_EQ(rows_of(program, "convolution.stride"), 1500);
  EXPECT_EQ(rows_of(program, "projection"), 750);
  EXPECT_EQ(rows_of(program, "clip_marks.rows"), 752);
  // Rows on both sides of a cut are read by a convolution, and pooled rows lie together.
  const Operator& folded = program.operators.at(*program.find_operator("convolution.stride.merge"));
  EXPECT_EQ(folded.rule.dims[*folded.rule.find("s")].kind, DimKind::kWhole);
  EXPECT_EQ(program.dims[*program.find_dim("s")].unit, 2);
}

TEST(ModelPrograms, TilesHaveARowOfTheirOwn) {
  const Program program = program_of_module("internvl3-8b", ModuleKind::kVision, 1025);
  EXPECT_EQ(rows_of(program, "patch_embedding"), 1024);
  EXPECT_EQ(rows_of(program, "class_token.rows"), 1025);
  EXPECT_EQ(rows_of(program, "projector.up"), 256);
  EXPECT_EQ(program.dims[*program.find_dim("s")].unit, 1);
}

TEST(ModelPrograms, RowsOfALayerAreBranchedOff) {
  const Program program = program_of_module("qwen3-vl-4b", ModuleKind::kVision, 1024);
  // Four corners of every patch, and three layers whose rows leave besides the last one's.
  EXPECT_EQ(program.dims[*program.find_dim("corner")].length, 4);
  EXPECT_EQ(program.repeats.size(), 4u);
  for (const char* name : {"merger.down", "branch.0.down", "branch.1.down", "branch.2.down"})
    EXPECT_EQ(rows_of(program, name), 256) << name;
}

TEST(ModelPrograms, WhatIsNoChainOfKnownOperatorsIsNamed) {
  const Model model = *Scenarios(source_tree() / "scenarios").model("qwen2.5-omni-7b");
  Module audio = *model.find(ModuleKind::kAudio);
  std::get<Matmul>(audio.exit.ops[2].shape).in += 1;
  const Result<Program> program = program_of(audio, {.samples = 1, .rows = 1500}, "omni");
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message().find("projection"), std::string::npos) << program.error().message();
  audio = *model.find(ModuleKind::kAudio);
  std::get<Lookup>(audio.exit.ops[3].shape).width += 1;
  const Result<Program> marks = program_of(audio, {.samples = 1, .rows = 1500}, "omni");
  ASSERT_FALSE(marks);
  EXPECT_NE(marks.error().message().find("clip_marks"), std::string::npos) << marks.error().message();
}

}  // namespace
}  // namespace weft
