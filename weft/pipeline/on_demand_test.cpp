#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"

namespace weft::on_demand_test {
namespace {

constexpr auto kVision = ModuleKind::kVision;
constexpr auto kAudio = ModuleKind::kAudio;
constexpr auto kPartial = ModulePlacement::kPartial;
constexpr auto kOnDemand = EncoderForm::kOnDemand;

/// Both encoders on every rank alone, sharing each microbatch of an llm over four: what MindSpeed-MM recommends.
TrainingExample recommended_for_omni() {
  return {.fixture = "qwen2_5_omni",
          .tp = 4,
          .dp = 2,
          .zero = 1,
          .mbs = 4,
          .microbatches = 3,
          .beside = {{kVision, {.dp = 8, .mbs_parts = 4, .form = kOnDemand, .zero = 1}},
                     {kAudio, {.dp = 8, .mbs_parts = 4, .form = kOnDemand, .zero = 1}}}};
}

class OnDemand : public testing::TestWithParam<TrainingExample> {};

TEST_P(OnDemand, EqualsOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

TEST(OnDemandPlans, TheRecommendedSettingHasOneMacroBatchAliveAtATime) {
  const TrainingExample example = recommended_for_omni();
  const Plan plan = example_training_plan(example, example_model(example));
  const Schedule schedule = *schedule_of(plan);
  for (const ScheduledEncoder& encoder : schedule.encoders) {
    EXPECT_EQ(encoder.num_macro_batches, 3) << "one for each microbatch";
    EXPECT_EQ(encoder.live_macro_batches, 1);
  }
  std::string row;
  for (const Action& action : schedule.rows.front()) row += to_text(action) + " ";
  EXPECT_EQ(row, "0EF0 1EF0 0F0 0B0 0EB0 1EB0 0EF1 1EF1 0F1 0B1 0EB1 1EB1 0EF2 1EF2 0F2 0B2 0EB2 1EB2 ");
}

std::vector<TrainingExample> plans() {
  const std::string vl = "qwen2_vl_untied";
  const std::string vl5 = "qwen2_5_vl";
  std::vector<TrainingExample> all = {recommended_for_omni()};
  // Before each microbatch, on the llm's ranks.
  all.push_back({.fixture = vl, .microbatches = 3, .beside = {{kVision, {.form = kOnDemand}}}});
  all.push_back(
      {.fixture = vl5, .dp = 2, .mbs = 2, .beside = {{kVision, {.tp = 2, .form = kOnDemand}}}, .bare_samples = {0, 1}});
  // Several microbatches at once, parts of one, and both ends inside a microbatch.
  all.push_back({.fixture = vl, .tp = 2, .microbatches = 5, .beside = {{kVision, {.dp = 2, .form = kOnDemand}}}});
  all.push_back({.fixture = vl, .mbs = 2, .beside = {{kVision, {.mbs_parts = 2, .form = kOnDemand}}}, .bare_step = 2});
  all.push_back({.fixture = vl5,
                 .dp = 2,
                 .mbs = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 2, .mbs_scale = 3, .mbs_parts = 2, .form = kOnDemand}}}});
  // Among the actions of a pipeline, with groups across its ranks.
  all.push_back({.fixture = vl, .pp = 2, .microbatches = 4, .beside = {{kVision, {.dp = 2, .form = kOnDemand}}}});
  all.push_back({.fixture = vl5,
                 .tp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .mbs = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.tp = 2, .dp = 2, .mbs_parts = 2, .form = kOnDemand, .zero = 1}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .vpp = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4,
                 .beside = {{kVision, {.tp = 2, .form = kOnDemand}}}});
  all.push_back({.fixture = vl,
                 .pp = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kPartial, .dp = 2, .form = kOnDemand, .rows = {0, 2}}}}});
  for (const int64_t zero : {2, 3}) {
    all.push_back(
        {.fixture = vl, .pp = 3, .microbatches = 5, .beside = {{kVision, {.dp = 3, .form = kOnDemand, .zero = zero}}}});
  }
  // Nothing kept from EF to EB, and nothing to go back for.
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 2, .form = kOnDemand, .recompute_from_inputs = true}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .microbatches = 4,
                 .frozen = {kVision},
                 .beside = {{kVision, {.dp = 2, .form = kOnDemand}}}});
  // Beside an encoder of another form.
  all.push_back({.fixture = "qwen2_5_omni",
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 2, .form = kOnDemand}},
                            {kAudio, {.tp = 2, .form = EncoderForm::kFill, .live = 3}}}});
  all.push_back({.fixture = "qwen2_5_omni",
                 .pp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 2, .zero = 2}}, {kAudio, {.dp = 2, .form = kOnDemand, .zero = 3}}}});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, OnDemand, testing::ValuesIn(plans()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft::on_demand_test
