// Every parallel form of a model with dropout against one rank: what is dropped is the same.
#include <set>

#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

class DropoutForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(DropoutForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> dropout_forms() {
  const TrainingExample plain{
      .fixture = "gpt2",
      .sizes = R"({"n_embd": 32, "n_head": 8, "n_layer": 4, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.1})",
      .sizes_name = "dropping",
      .mbs = 2};
  std::vector<TrainingExample> all;
  const auto add = [&](auto change) { change(all.emplace_back(plain)); };
  const RecomputeCounts whole{.full = 4}, attention{.selective = 4};
  add([](TrainingExample&) {});
  add([](TrainingExample& e) { e.tp = 2; });
  add([](TrainingExample& e) { e.tp = 4, e.sequence_parallel = true; });
  add([](TrainingExample& e) { e.pp = 2, e.vpp = 2, e.schedule = "interleaved_1f1b"; });
  add([](TrainingExample& e) { e.pp = 2, e.schedule = "zb_h1"; });
  add([](TrainingExample& e) { e.dp = 2, e.zero = 3; });
  add([](TrainingExample& e) { e.cp = 2; });
  add([](TrainingExample& e) { e.cp = 4, e.ulysses = 2; });
  add([&](TrainingExample& e) { e.tp = 2, e.cp = 2, e.recompute = whole; });
  add([&](TrainingExample& e) {
    e.tp = 2, e.cp = 2, e.ulysses = 2, e.sequence_parallel = true, e.recompute = attention;
  });
  add([&](TrainingExample& e) { e.tp = 2, e.pp = 2, e.dp = 2, e.zero = 2, e.recompute = whole; });
  add([&](TrainingExample& e) { e.cp = 2, e.pp = 2, e.recompute = attention; });
  return all;
}

/// Rows of media have numbers, too: patches, patches in windows, tiles with a row in front of them, sound.
std::vector<TrainingExample> encoder_forms() {
  static constexpr ModuleKind kVision = ModuleKind::kVision, kAudio = ModuleKind::kAudio;
  const TrainingExample patches{
      .fixture = "qwen2_vl_untied",
      .sizes = R"({"text_config": {"attention_dropout": 0.2}, "vision_config": {"attention_dropout": 0.3}})",
      .sizes_name = "patches",
      .mbs = 2,
      .has_videos = true};
  const TrainingExample windows{.fixture = "qwen2_5_vl",
                                .sizes = R"({"vision_config": {"attention_dropout": 0.3}})",
                                .sizes_name = "windows",
                                .mbs = 2};
  const TrainingExample tiles{.fixture = "internvl",
                              .sizes = R"({"vision_config": {"attention_bias": false, "attention_dropout": 0.3,
                                           "hidden_dropout_prob": 0.2, "projection_dropout": 0.25}})",
                              .sizes_name = "tiles",
                              .mbs = 2};
  // Rows that enter the first layer are dropped with and without places.
  const TrainingExample placeless{
      .fixture = "internvl",
      .sizes = R"({"vision_config": {"attention_bias": false, "use_absolute_position_embeddings": false,
                                     "hidden_dropout_prob": 0.3}})",
      .sizes_name = "placeless",
      .mbs = 2};
  const TrainingExample sound{
      .fixture = "qwen2_5_omni",
      .sizes =
          R"({"audio_config": {"attention_dropout": 0.3, "dropout": 0.2, "activation_dropout": 0.25},
              "vision_config": {"attention_dropout": 0.1}})",
      .sizes_name = "sound",
      .mbs = 2};
  std::vector<TrainingExample> all;
  const auto add = [&](const TrainingExample& plain, auto change) { change(all.emplace_back(plain)); };
  for (const TrainingExample& plain : {patches, windows, tiles, sound}) {
    add(plain, [](TrainingExample&) {});
    add(plain, [](TrainingExample& e) { e.cp = 2; });
    add(plain, [](TrainingExample& e) { e.dp = 2, e.zero = 3, e.recompute = {.full = 1, .selective = 1}; });
  }
  for (const TrainingExample& plain : {windows, tiles}) {
    add(plain, [](TrainingExample& e) { e.pp = 2, e.microbatches = 3; });
    add(plain, [](TrainingExample& e) { e.pp = 2, e.microbatches = 4, e.beside = {{kVision, {.cp = 2}}}; });
    add(plain, [](TrainingExample& e) {
      e.dp = 2, e.microbatches = 4,
      e.beside = {{kVision, {.dp = 2, .mbs_scale = 2, .form = EncoderForm::kFill, .live = 8}}};
    });
  }
  add(tiles, [](TrainingExample& e) { e.tp = 2, e.sequence_parallel = true; });
  add(tiles, [](TrainingExample& e) { e.tp = 2, e.cp = 2, e.sequence_parallel = true, e.recompute = {.full = 2}; });
  add(tiles, [](TrainingExample& e) { e.tp = 2, e.cp = 2, e.recompute = {.full = 1, .selective = 1}; });
  add(tiles, [](TrainingExample& e) { e.pp = 2, e.tp = 2, e.microbatches = 3, e.recompute = {.full = 2}; });
  add(placeless, [](TrainingExample&) {});
  add(placeless, [](TrainingExample& e) { e.tp = 2, e.cp = 2, e.sequence_parallel = true, e.recompute = {.full = 2}; });
  add(sound, [](TrainingExample& e) { e.tp = 2, e.sequence_parallel = true; });
  add(sound, [](TrainingExample& e) { e.tp = 2, e.cp = 2, e.recompute = {.full = 1, .selective = 1}; });
  add(sound, [](TrainingExample& e) {
    e.pp = 2, e.microbatches = 4, e.beside = {{kVision, {.dp = 2}}, {kAudio, {.cp = 2}}};
  });
  return all;
}

TEST(DropoutForms, LoseSomethingInEncoders) {
  for (const TrainingExample& plain : encoder_forms()) {
    if (plain.pp * plain.dp * plain.cp * plain.tp > 1) continue;
    const double loss = train_by_hand(plain, example_model(plain)).losses.front();
    const Json given = Json::parse(plain.sizes);
    for (const auto& [module, fields] : given.items()) {
      for (const auto& [field, ignored] : fields.items()) {
        if (field.find("dropout") == std::string::npos) continue;
        TrainingExample less = plain;
        Json sizes = given;
        sizes[module][field] = 0;
        less.sizes = sizes.dump();
        EXPECT_NE(train_by_hand(less, example_model(less)).losses.front(), loss) << plain.sizes_name << " " << field;
      }
    }
  }
}

TEST(DropoutForms, LoseSomethingInEveryOperatorThatDrops) {
  TrainingExample example = dropout_forms().front();
  std::set<double> losses = {train_by_hand(example, example_model(example)).losses.front()};
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
    Json sizes = Json::parse(dropout_forms().front().sizes);
    sizes[key] = 0;
    example.sizes = sizes.dump();
    losses.insert(train_by_hand(example, example_model(example)).losses.front());
  }
  EXPECT_EQ(losses.size(), 4U) << "leaving one of them out changes nothing";
}

INSTANTIATE_TEST_SUITE_P(Encoders, DropoutForms, testing::ValuesIn(encoder_forms()),
                         [](const auto& test) { return test.param.name(); });
INSTANTIATE_TEST_SUITE_P(Plans, DropoutForms, testing::ValuesIn(dropout_forms()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft
