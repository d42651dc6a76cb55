// Towers over tiles, whose sequences have a row for the class, in every parallel form against one rank.
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "weft/meaning/check.h"

namespace weft::tile_forms_test {
namespace {

class TileForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(TileForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  expect_same_training(train_example(example, model), expected_training(example, model));
}

TrainingExample tiles(TrainingExample example) {
  example.fixture = kTinyTiles.fixture;
  example.sizes = kTinyTiles.sizes;
  example.sizes_name = kTinyTiles.name;
  example.steps = 2;
  return example;
}

std::vector<TrainingExample> forms() {
  constexpr ModuleKind kVision = ModuleKind::kVision;
  std::vector<TrainingExample> all;
  // In the pipeline: rows whole or divided, and tiles that lie on two ranks.
  all.push_back(tiles({.tp = 2, .mbs = 2}));
  all.push_back(tiles({.tp = 4, .sequence_parallel = true, .mbs = 2}));
  all.push_back(tiles({.tp = 2, .cp = 2, .sequence_parallel = true, .mbs = 2}));
  all.push_back(tiles({.cp = 4, .ulysses = 2, .encoder_ulysses = 2, .mbs = 2}));
  all.push_back(tiles({.tp = 2,
                       .pp = 3,
                       .sequence_parallel = true,
                       .schedule = "zb_h1",
                       .microbatches = 4,
                       .layers = {{0}, {0}, {2}},
                       .vision_layers = {{1}, {1}, {0}}}));
  all.push_back(tiles({.pp = 2, .dp = 2, .zero = 3, .microbatches = 3, .recompute = {.full = 1, .selective = 1}}));
  // What learns: the projector alone, its norm alone, all but the tower's layers.
  all.push_back(tiles({.tp = 2, .sequence_parallel = true, .frozen = {kVision}}));
  all.push_back(
      tiles({.tp = 2,
             .sequence_parallel = true,
             .trainable = {{.weights = "*", .train = false}, {.weights = "multi_modal_projector.layer_norm.*"}}}));
  all.push_back(tiles({.tp = 2, .cp = 2, .trainable = {{.weights = "vision_tower.encoder.*", .train = false}}}));
  // Beside the pipeline.
  all.push_back(tiles({.pp = 2,
                       .microbatches = 4,
                       .beside = {{kVision, {.dp = 2, .mbs_scale = 2, .form = EncoderForm::kFill, .live = 4}}}}));
  all.push_back(tiles({.tp = 2,
                       .pp = 2,
                       .microbatches = 4,
                       .beside = {{kVision, {.tp = 2, .cp = 2, .zero = 1, .sequence_parallel = true}}}}));
  all.push_back(
      tiles({.pp = 2,
             .microbatches = 4,
             .beside = {{kVision, {.placement = ModulePlacement::kDisjoint, .pp = 2, .form = EncoderForm::kStream}}}}));
  all.push_back(tiles({.dp = 2,
                       .microbatches = 4,
                       .beside = {{kVision, {.dp = 2, .recompute_from_inputs = true}}},
                       .bare_samples = {0, 1}}));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, TileForms, testing::ValuesIn(forms()),
                         [](const auto& named) { return std::to_string(named.index) + "_" + named.param.name(); });

/// Norms of queries that need all heads of a row.
TEST(TileForms, NormsOverAllHeadsTrainWithoutTensorParallelismAndAreRefusedWithIt) {
  TrainingExample example{
      .fixture = "internvl_norms", .cp = 2, .pp = 2, .ulysses = 2, .encoder_ulysses = 2, .mbs = 2, .steps = 2};
  const Model model = example_model(example);
  expect_same_training(train_example(example, model), expected_training(example, model));
  example.cp = example.ulysses = example.encoder_ulysses = 1;
  example.tp = 2;
  const std::vector<Violation> found = check_plan(example_training_plan(example, model));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].field, "modules.vision.tp");
  EXPECT_NE(found[0].message.find("normed together"), std::string::npos) << found[0].message;
}

}  // namespace
}  // namespace weft::tile_forms_test
