#include <gtest/gtest.h>

#include "tests/support/exchange/plans_to_export.h"
#include "weft/plan/mbs_scale.h"

namespace weft::mindspeed_mm_test {
namespace {

void expect_refused(const Plan& plan, const std::string& message) {
  expect_refused(plan, Target::kMindspeedMm, message);
}

/// The plan of MindSpeed-MM's own example: Qwen2-VL-72B on 128 devices, 761.58 tokens a second on each.
Plan search_example() {
  Plan plan = shipped_plan("qwen2-vl-72b_16384");
  plan.schedule.microbatches = 32;
  reshape(plan, 2, 1, 8, 8, {{5}, {11}, {11}, {11}, {11}, {11}, {11}, {9}});
  for (const int64_t full : {0, 10, 9, 9, 9, 7, 4, 0})
    llm_of(plan).recompute.push_back({RecomputeCounts{.full = full}});
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision = {.kind = ModuleKind::kVision,
            .placement = ModulePlacement::kInline,
            .ranks = llm_of(plan).ranks,
            .axis_order = llm_of(plan).axis_order,
            .layers = {{32}, {0}, {0}, {0}, {0}, {0}, {0}, {0}}};
  vision.degrees() = {.tp = 2, .pp = 8, .dp = 8};
  plan.predicted.step_time_ms = 8992;
  plan.predicted.throughput_samples_per_s = 761.58 * 128 / 4096;
  return plan;
}

TEST(MindspeedSearchExport, HasExactlyTheShapeOfItsSearchResult) {
  const auto files = export_plan(search_example(), Target::kMindspeedMm);
  ASSERT_TRUE(files.ok()) << files.error().message() << files.error().details;
  ASSERT_EQ(files->size(), 1u);
  EXPECT_EQ(files->front().name, "auto_parallel_search_optimal_config.json");
  const Json expected = Json::parse(R"({
    "parallel_config": {"PP": 8, "TP": 2, "DP": 8, "MBS": 1},
    "layer_placement": {"vit_layer_placement": [32, 0, 0, 0, 0, 0, 0, 0],
                        "llm_layer_placement": [5, 11, 11, 11, 11, 11, 11, 9]},
    "layer_recompute": {"vit_layer_recompute": [0, 0, 0, 0, 0, 0, 0, 0],
                        "llm_layer_recompute": [0, 10, 9, 9, 9, 7, 4, 0]},
    "e2e_time": 8992.0, "throughput": 761.58})");
  EXPECT_EQ(Json::parse(files->front().text), expected);
  EXPECT_EQ(Json::parse(files->front().text).dump(), expected.dump());  // the order of keys and 8992.0 too
}

TEST(MindspeedSearchExport, CountsTokensOfTheLanguageModelPerDevice) {
  Plan plan = search_example();
  plan.predicted.throughput_samples_per_s = 64;  // of 4096 tokens, on 128 devices
  EXPECT_EQ(Json::parse(outcome(plan, Target::kMindspeedMm))["throughput"], 2048);
}

TEST(MindspeedSearchExport, TakesAModelWithoutEncoders) {
  Plan plan = llama_plan();
  plan.predicted = {.step_time_ms = 1000, .peak_memory_gib = {}, .throughput_samples_per_s = 32};
  const Json json = Json::parse(outcome(plan, Target::kMindspeedMm));
  EXPECT_EQ(json["layer_placement"],
            Json::parse(R"({"vit_layer_placement": [0, 0], "llm_layer_placement": [16, 16]})"));
  EXPECT_EQ(json["layer_recompute"], Json::parse(R"({"vit_layer_recompute": [0, 0], "llm_layer_recompute": [0, 0]})"));
}

TEST(MindspeedSearchExport, RefusesAPlanThatWasNeverSimulated) {
  const Plan plan = shipped_plan("qwen2-vl-7b_inline");
  expect_refused(plan, "predicted.step_time_ms: is 0");
  EXPECT_EQ(export_plan(plan, Target::kMindspeedMm).error().advice,
            "Simulate the plan first, or make it with weft plan.");
  Plan half = search_example();
  half.predicted.throughput_samples_per_s = 0;
  expect_refused(half, "predicted.throughput_samples_per_s: is 0");
}

TEST(MindspeedSearchExport, RefusesWhatTheFileHasNoPlaceFor) {
  const auto simulated = [](Plan plan) {
    plan.predicted = {.step_time_ms = 1000, .peak_memory_gib = {}, .throughput_samples_per_s = 32};
    return plan;
  };
  Plan ring = simulated(shipped_plan("llama3-8b_cp4_ulysses2"));
  expect_refused(ring, "modules.llm.cp: is 4, but MindSpeed-MM's search result has only PP, TP, DP and MBS");
  Plan experts = simulated(shipped_plan("qwen3-30b-a3b_zb_h1_ep8"));
  experts.schedule.name = "1f1b";
  expect_refused(experts, "modules.llm.ep: is 8");
  expect_refused(simulated(shipped_plan("llama3-8b_gpipe_tp2_pp2_dp2")), "schedule.name: is gpipe");
  EXPECT_NE(outcome(simulated(shipped_plan("llama3-70b_interleaved_tp8_pp4_vpp5")), Target::kMindspeedMm)
                .find("  modules.llm.vpp: is 5"),
            std::string::npos);
  expect_refused(simulated(shipped_plan("llama3-8b_zero3_dp8")), "modules.llm.zero: is 3");

  Plan plan = search_example();
  llm_of(plan).recompute[1][0] = RecomputeCounts{.full = 9, .selective = 1};
  expect_refused(
      plan,
      "modules.llm.recompute[1][0]: recomputes the attention of 1 block, but layer_recompute counts whole layers");
  plan = search_example();
  for (ModulePlan& module : plan.modules) module.axis_order = {"dp", "tp", "cp", "pp"};
  expect_refused(plan, "modules.llm.axis_order: is [dp, tp, cp, pp]");
  plan = search_example();
  plan.balance = Balance::kEncoder;
  expect_refused(plan, "balance: is encoder, but MindSpeed-MM");
}

/// Both encoders of an omni model first in the pipeline of its llm, which has tp 2, pp 2 and dp 2.
Plan inline_omni() {
  Plan plan = shipped_plan("qwen2.5-omni-7b_colocated_dp8");
  reshape(plan, 2, 1, 2, 2, {{11}, {17}});
  for (ModulePlan& module : plan.modules) {
    if (!module.is_encoder()) continue;
    const int64_t layers = module.layers[0][0];
    module = {.kind = module.kind,
              .placement = ModulePlacement::kInline,
              .ranks = plan.llm().ranks,
              .axis_order = plan.llm().axis_order,
              .layers = {{layers}, {0}}};
    module.degrees() = {.tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = plan.llm().zero};
  }
  return plan;
}

TEST(MindspeedPipelineExport, PlacesAnAudioEncoderInThePipelineByModelJson) {
  Plan plan = inline_omni();
  const auto files = export_plan(plan, Target::kMindspeedMm);
  ASSERT_TRUE(files.ok()) << files.error().message() << files.error().details;
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].name, "model.json");
  // As MindSpeed-MM's own example of the model has it.
  EXPECT_EQ(Json::parse((*files)[0].text), Json::parse(R"({
    "image_encoder": {"vision_encoder": {"pipeline_num_layers": [32, 0]}},
    "audio_encoder": {"audio_encoder": {"pipeline_num_layers": [32, 0]}},
    "text_decoder": {"pipeline_num_layers": [11, 17]}})"));
  EXPECT_EQ((*files)[1].name, "mindspeed_mm_args.txt");
  const std::string& line = (*files)[1].text;
  const std::string degrees =
      "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --context-parallel-size 1 --micro-batch-size ";
  EXPECT_EQ(line.substr(0, degrees.size()), degrees);
  EXPECT_NE(line.find(" --sequence-parallel"), std::string::npos) << line;
  EXPECT_EQ(line.find("--hetero-parallel"), std::string::npos) << line;

  llm_of(plan).recompute = {{RecomputeCounts{.full = 3}}, {RecomputeCounts{.full = 3}}};
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("\"recompute_num_layers\": 3"), std::string::npos);
  llm_of(plan).recompute = {{RecomputeCounts{.full = 3}}, {RecomputeCounts{.full = 4}}};
  expect_refused(plan, "modules.llm.recompute[0][0]: has full 3 of 11 blocks where another stage has 4");
  plan = inline_omni();
  for (ModulePlan& module : plan.modules) module.zero = 2;
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("modules.llm.zero: is 2, but the distributed optimizer"),
            std::string::npos);
}

TEST(MindspeedPipelineExport, TakesContextParallelismOfAModelWithEncoders) {
  Plan plan = search_example();
  reshape(plan, 2, 2, 8, 4, llm_of(plan).layers);
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision.ranks = llm_of(plan).ranks;
  vision.cp = 2, vision.dp = 4;
  vision.sequence_parallel = llm_of(plan).sequence_parallel;
  vision.zero = llm_of(plan).zero;
  EXPECT_NE(
      outcome(plan, Target::kMindspeedMm).find("--context-parallel-size 2 --context-parallel-algo megatron_cp_algo"),
      std::string::npos)
      << outcome(plan, Target::kMindspeedMm);
  llm_of(plan).cp_ulysses = 2;
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("modules.vision.cp_ulysses: is 1 where the llm's is 2"),
            std::string::npos)
      << outcome(plan, Target::kMindspeedMm);
}

/// Vision on all eight ranks, the llm with tp 2 and pp 4: a macro batch covers eight of the llm's microbatches.
Plan modules_example() {
  Plan plan = shipped_plan("qwen2-vl-7b_colocated_before");
  module_of(plan, ModuleKind::kVision).recompute_from_inputs = false;
  return plan;
}

TEST(MindspeedModulesExport, GivesEveryModuleItsDegrees) {
  Plan plan = modules_example();
  llm_of(plan).layers = {{4}, {8}, {8}, {8}};
  const auto files = export_plan(plan, Target::kMindspeedMm);
  ASSERT_TRUE(files.ok()) << files.error().message() << files.error().details;
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].name, "model.json");
  EXPECT_EQ(Json::parse((*files)[0].text), Json::parse(R"({
    "image_encoder": {"tp": 1, "pp": 1, "cp": 1, "mbs": 1},
    "text_decoder": {"tp": 2, "pp": 4, "cp": 1, "mbs": 1, "pipeline_num_layers": [4, 8, 8, 8]}})"));
  EXPECT_EQ((*files)[1].name, "mindspeed_mm_args.txt");
  EXPECT_EQ((*files)[1].text,
            "--hetero-parallel --hetero-encoder-mbs-scale 8 --tensor-model-parallel-size 1 "
            "--pipeline-model-parallel-size 1 --context-parallel-size 1 --micro-batch-size 1 --global-batch-size 256 "
            "--sequence-parallel --overlap-grad-reduce --ddp-bucket-size 16000000 --bf16 "
            "--accumulate-allreduce-grads-in-fp32\n");
}

/// MindSpeed-MM divides the batch by the ranks of one replica of the llm; what is left has to be the plan's.
TEST(MindspeedModulesExport, GivesTheBatchThatIsDividedAgain) {
  const Plan plan = modules_example();
  const std::string line = (*export_plan(plan, Target::kMindspeedMm))[1].text;
  const std::string flag = "--global-batch-size ";
  const int64_t given = std::stoll(line.substr(line.find(flag) + flag.size()));
  const ModulePlan& llm = plan.llm();
  EXPECT_EQ(given / (llm.tp * llm.cp * llm.pp), plan.workload.global_batch_samples);
}

TEST(MindspeedModulesExport, ScalesByTheMicrobatchesThatAMacroBatchCovers) {
  Plan plan = modules_example();
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision.mbs_scale = 2;  // two samples on each of eight ranks are sixteen microbatches of one sample
  const std::string text = outcome(plan, Target::kMindspeedMm);
  EXPECT_NE(text.find("--hetero-encoder-mbs-scale 16 "), std::string::npos) << text;
  EXPECT_NE(text.find("\"mbs\": 2"), std::string::npos) << text;
  vision.mbs_scale = 3;
  expect_refused(plan,
                 "modules.vision.mbs_scale: is 3 on dp 8, which covers 24 of the llm's microbatches, but "
                 "MindSpeed-MM needs a number that divides all 32 of them");
}

TEST(MindspeedModulesExport, RefusesMacroBatchesThatMindspeedCannotForm) {
  Plan plan = modules_example();
  reshape(plan, 2, 1, 1, 4, {{28}});
  expect_refused(plan,
                 "modules.vision.mbs_scale: is 1 on dp 8, which covers 2 of the llm's microbatches, but where the "
                 "llm has no pipeline MindSpeed-MM runs encoders once for each. Use pp above 1 for the llm, or an "
                 "mbs_scale of 1/2 for the encoder");
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision.tp = 4, vision.dp = 2;
  vision.sequence_parallel = true;
  expect_refused(plan, "modules.vision.mbs_scale: is 1 on dp 2, which covers 2/4 of the llm's microbatches");
  vision.tp = 2, vision.dp = 4;
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("--hetero-encoder-mbs-scale 1 "), std::string::npos)
      << outcome(plan, Target::kMindspeedMm);
}

/// MindSpeed-MM's recommendation for Omni at short sequences: encoders dp 8, the llm tp 4 and dp 2.
Plan recommended_for_omni() {
  Plan plan = shipped_plan("qwen2.5-omni-7b_colocated_dp8");
  reshape(plan, 4, 1, 1, 2, {{28}});
  plan.schedule.mbs = 4;
  plan.schedule.microbatches = plan.workload.global_batch_samples / 8;
  for (ModulePlan& module : plan.modules) {
    module.zero = 1;
    if (!module.is_encoder()) continue;
    module.form = EncoderForm::kOnDemand;
    set_mbs_scale(module, 1, 4);
  }
  return plan;
}

TEST(MindspeedModulesExport, EncoderRanksShareEachMicrobatch) {
  const Plan plan = recommended_for_omni();
  const auto files = export_plan(plan, Target::kMindspeedMm);
  ASSERT_TRUE(files.ok()) << files.error().message() << files.error().details;
  const Json model = Json::parse(files->front().text);
  for (const char* encoder : {"image_encoder", "audio_encoder"})
    EXPECT_EQ(model.at(encoder).at("mbs"), 1) << "of the eight samples of a microbatch, one a rank";
  EXPECT_EQ(model.at("text_decoder").at("mbs"), 4);
  EXPECT_NE(files->back().text.find("--hetero-encoder-mbs-scale 1 "), std::string::npos) << files->back().text;
}

TEST(MindspeedModulesExport, WithAPipelineEncodersRunBeforeIt) {
  Plan plan = recommended_for_omni();
  reshape(plan, 2, 1, 2, 2, {{14}, {14}});
  module_of(plan, ModuleKind::kAudio).form = EncoderForm::kBefore;
  expect_refused(plan,
                 "modules.vision.form: is on_demand, but MindSpeed-MM runs encoders before the llm's pipeline, and "
                 "without one before each microbatch");
}

TEST(MindspeedModulesExport, RefusesEncodersOfDifferentScales) {
  const std::string text = outcome(shipped_plan("qwen2.5-omni-7b_colocated_dp8"), Target::kMindspeedMm);
  EXPECT_NE(
      text.find("  modules.audio.mbs_scale: is 8 on dp 8, which covers 32 of the llm's microbatches where another "
                "encoder covers 16"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("  modules.audio.zero: is 0 where the llm's is 1"), std::string::npos) << text;
}

TEST(MindspeedModulesExport, HasOneKeyForEachModule) {
  Plan plan = shipped_plan("qwen2.5-omni-7b_colocated_dp8");
  reshape(plan, 2, 1, 2, 2, {{14}, {14}});
  for (ModulePlan& module : plan.modules) module.zero = 1;
  module_of(plan, ModuleKind::kAudio).mbs_scale = 4;
  const auto files = export_plan(plan, Target::kMindspeedMm);
  ASSERT_TRUE(files.ok()) << files.error().message() << files.error().details;
  EXPECT_EQ(Json::parse(files->front().text), Json::parse(R"({
    "image_encoder": {"tp": 1, "pp": 1, "cp": 1, "mbs": 4},
    "audio_encoder": {"tp": 1, "pp": 1, "cp": 1, "mbs": 4},
    "text_decoder": {"tp": 2, "pp": 2, "cp": 1, "mbs": 1, "pipeline_num_layers": [14, 14]}})"));
  EXPECT_NE(files->back().text.find("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "),
            std::string::npos);
}

TEST(MindspeedModulesExport, PutsRecomputationWhereTheLayersAre) {
  Plan plan = modules_example();
  module_of(plan, ModuleKind::kVision).recompute = {{RecomputeCounts{.full = 32}}};
  llm_of(plan).recompute.assign(4, {RecomputeCounts{.selective = 7}});
  const Json model = Json::parse(export_plan(plan, Target::kMindspeedMm)->front().text);
  EXPECT_EQ(
      model["image_encoder"]["vision_encoder"],
      Json::parse(R"({"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 32})"));
  EXPECT_EQ(model["text_decoder"]["recompute_granularity"], "selective");
  llm_of(plan).recompute = {{RecomputeCounts{.full = 1}},
                            {RecomputeCounts{.full = 2}},
                            {RecomputeCounts{.full = 2}},
                            {RecomputeCounts{.full = 2}}};
  expect_refused(plan, "modules.llm.recompute[0][0]: has full 1 of 7 blocks where another stage has 2");
}

TEST(MindspeedModulesExport, NamesOneAlgorithmOfContextParallelism) {
  Plan plan = modules_example();
  reshape(plan, 1, 4, 2, 1, {{14}, {14}});
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("--context-parallel-algo megatron_cp_algo "), std::string::npos);
  llm_of(plan).cp_ulysses = 4;
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("--context-parallel-algo ulysses_cp_algo "), std::string::npos);
  llm_of(plan).cp_ulysses = 2;
  EXPECT_NE(
      outcome(plan, Target::kMindspeedMm).find("--context-parallel-algo hybrid_cp_algo --ulysses-degree-in-cp 2 "),
      std::string::npos);
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision.cp = 2, vision.dp = 4;
  expect_refused(plan, "modules.llm.cp_ulysses: is 2 of cp 4");
}

TEST(MindspeedModulesExport, RefusesOtherPlacementsAndForms) {
  expect_refused(shipped_plan("qwen2-vl-7b_partial"), "modules.vision.placement: is partial");
  EXPECT_NE(outcome(shipped_plan("qwen2.5-vl-7b_disjoint_stream"), Target::kMindspeedMm)
                .find("  modules.vision.placement: is disjoint"),
            std::string::npos);
  expect_refused(shipped_plan("qwen2-vl-7b_colocated_before"), "modules.vision.recompute_from_inputs: is true");
  Plan fill = shipped_plan("qwen2.5-vl-7b_colocated_fill");
  expect_refused(fill, "modules.vision.form: and 1 other field");
  module_of(fill, ModuleKind::kVision).sequence_parallel = true;
  expect_refused(fill, "modules.vision.form: is fill, but MindSpeed-MM runs encoders before the llm's pipeline");
}

TEST(MindspeedModulesExport, RefusesWhatTheModulesCannotHaveApart) {
  Plan plan = modules_example();
  module_of(plan, ModuleKind::kVision).zero = 1;
  expect_refused(plan, "modules.vision.zero: is 1 where the llm's is 0");
  plan.workload.frozen = {ModuleKind::kVision};  // nothing of it is in the optimizer
  EXPECT_TRUE(export_plan(plan, Target::kMindspeedMm).ok());
  plan = modules_example();
  llm_of(plan).zero = 2;
  module_of(plan, ModuleKind::kVision).zero = 2;
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("  modules.llm.zero: is 2, but with modules of their own degrees"),
            std::string::npos);
  plan = modules_example();
  ModulePlan& vision = module_of(plan, ModuleKind::kVision);
  vision.tp = 2, vision.dp = 4;
  expect_refused(plan, "modules.vision.sequence_parallel: is false where the llm's is true");
  plan = modules_example();
  module_of(plan, ModuleKind::kVision).axis_order = {"dp", "cp", "tp"};  // dp alone is above 1
  EXPECT_TRUE(export_plan(plan, Target::kMindspeedMm).ok());
  llm_of(plan).axis_order = {"pp", "tp", "cp", "dp"};
  expect_refused(plan, "modules.llm.axis_order: is [pp, tp, cp, dp]");
  plan = modules_example();
  plan.schedule.name = "gpipe";
  expect_refused(plan, "schedule.name: is gpipe");
  plan = modules_example();
  reshape(plan, 2, 1, 4, 1, {{4, 3}, {4, 3}, {4, 3}, {4, 3}});
  EXPECT_NE(outcome(plan, Target::kMindspeedMm).find("  modules.llm.vpp: is 2"), std::string::npos);
}

}  // namespace
}  // namespace weft::mindspeed_mm_test
