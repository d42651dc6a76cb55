#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

constexpr auto kVision = ModuleKind::kVision;
constexpr auto kAudio = ModuleKind::kAudio;
constexpr auto kDisjoint = ModulePlacement::kDisjoint;
constexpr auto kPartial = ModulePlacement::kPartial;
constexpr auto kFill = EncoderForm::kFill;
constexpr auto kStream = EncoderForm::kStream;

class ContextBeside : public testing::TestWithParam<TrainingExample> {};

TEST_P(ContextBeside, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> plans() {
  const std::string vl = "qwen2_vl_untied";
  const std::string windows = "qwen2_5_vl";
  const std::string omni = "qwen2_5_omni";
  std::vector<TrainingExample> all;
  // The llm's tokens shared out, encoders of other degrees beside it.
  all.push_back({.fixture = vl, .cp = 2, .mbs = 2, .beside = {{kVision, {.dp = 2}}}});
  all.push_back({.fixture = windows, .cp = 2, .ulysses = 2, .mbs = 2, .beside = {{kVision, {.tp = 2}}}});
  all.push_back(
      {.fixture = vl, .tp = 2, .cp = 2, .sequence_parallel = true, .mbs = 2, .beside = {{kVision, {.dp = 4}}}});
  all.push_back({.fixture = vl, .cp = 2, .pp = 2, .microbatches = 3, .beside = {{kVision, {.dp = 4, .mbs_scale = 2}}}});
  all.push_back({.fixture = windows,
                 .tp = 2,
                 .cp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 8}}}});
  all.push_back({.fixture = vl, .cp = 2, .dp = 2, .frozen = {ModuleKind::kLlm}, .beside = {{kVision, {.dp = 4}}}});
  all.push_back({.fixture = vl, .cp = 2, .frozen = {kVision}, .beside = {{kVision, {.dp = 2}}}});
  // An encoder's rows shared out.
  all.push_back({.fixture = vl, .dp = 2, .mbs = 2, .beside = {{kVision, {.cp = 2}}}});
  all.push_back(
      {.fixture = windows, .tp = 2, .dp = 2, .mbs = 2, .beside = {{kVision, {.cp = 2, .dp = 2, .ulysses = 2}}}});
  all.push_back({.fixture = windows, .dp = 4, .beside = {{kVision, {.tp = 2, .cp = 2, .sequence_parallel = true}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.cp = 2, .mbs_scale = 2, .form = kFill, .live = 3, .zero = 1}}}});
  all.push_back({.fixture = vl,
                 .dp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kDisjoint, .cp = 2, .pp = 2, .form = kStream, .live = 3}}}});
  all.push_back({.fixture = windows,
                 .pp = 2,
                 .dp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kPartial, .cp = 2, .recompute_from_inputs = true, .rows = {1}}}}});
  // Both, and two encoders.
  all.push_back({.fixture = vl, .cp = 4, .ulysses = 2, .mbs = 2, .beside = {{kVision, {.cp = 2, .dp = 2}}}});
  all.push_back(
      {.fixture = omni, .cp = 2, .dp = 2, .mbs = 2, .beside = {{kVision, {.cp = 2, .dp = 2}}, {kAudio, {.cp = 4}}}});
  all.push_back({.fixture = omni,
                 .tp = 2,
                 .cp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .beside = {{kVision, {.cp = 2, .dp = 4}}, {kAudio, {.dp = 8}}},
                 .bare_samples = {0}});
  all.push_back({.fixture = omni, .cp = 2, .mbs = 2, .beside = {{kAudio, {.cp = 2}}}});  // vision is inline
  all.push_back({.fixture = omni, .cp = 2, .beside = {{kVision, {.cp = 2}}, {kAudio, {.dp = 2}}}, .bare_step = 2});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, ContextBeside, testing::ValuesIn(plans()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft
