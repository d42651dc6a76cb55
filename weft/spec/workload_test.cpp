#include "weft/spec/workload.h"

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/draw_batch.h"
#include "weft/spec/sample_load.h"
#include "weft/spec/scenario.h"
#include "weft/spec/work.h"

namespace weft::workload_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

Result<Workload> read(const std::string& text) {
  return read_workload(*parse_document(text, "w.yaml", Syntax::kYaml), "w");
}

std::string finding(const std::string& text) {
  const Result<Workload> workload = read(text);
  return workload ? "" : workload.error().message();
}

TEST(Workload, EveryShippedWorkloadFitsTheModelsThatItIsFor) {
  const std::map<std::string, std::string> models = {{"text_4k", "llama3-8b"},
                                                     {"vl_sft", "qwen2-vl-7b"},
                                                     {"vl_frozen", "qwen2.5-vl-7b"},
                                                     {"omni_short", "qwen2.5-omni-7b"},
                                                     {"vl_long", "qwen2-vl-72b"}};
  for (const auto& [workload, model] : models) {
    const Model m = *kScenarios.model(model);
    const Workload w = *kScenarios.workload(workload);
    const Result<SampleLoad> load = average_sample(m, w);
    ASSERT_TRUE(load.ok()) << load.error().message();
    const Result<double> flops = training_step_flops(m, w, *load);
    ASSERT_TRUE(flops.ok()) << flops.error().message();
    EXPECT_GT(*flops, 0);
  }
  const Workload sft = *kScenarios.workload("vl_sft");
  EXPECT_EQ(sft.tokens.mean(), 4096);
  EXPECT_EQ(sft.images.pieces_per_sample.min(), 0);
  EXPECT_EQ(sft.images.pieces_per_sample.max(), 4);
  EXPECT_TRUE(sft.frozen.empty());
  EXPECT_TRUE(kScenarios.workload("vl_frozen")->is_frozen(ModuleKind::kVision));
  EXPECT_EQ(kScenarios.workload("vl_long")->tokens.mean(), 32768);
  const Result<SampleLoad> omni =
      average_sample(*kScenarios.model("qwen2.5-omni-7b"), *kScenarios.workload("omni_short"));
  EXPECT_NEAR(num_tokens(omni->llm), 1000, 150) << "about a thousand tokens";
}

TEST(Workload, WhatIsWrittenReadsBackTheSame) {
  for (const std::string& name : kScenarios.names("workloads")) {
    const Json json = to_json(*kScenarios.workload(name));
    const Result<Workload> again = read_workload({.source = "again", .root = json}, "");
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(to_json(*again), json);
    EXPECT_EQ(again->name, name);
  }
}

TEST(Workload, MistakesNameTheField) {
  EXPECT_EQ(finding("sequence_tokens: 10\n"), "w.yaml: global_batch_samples: is missing. Add it.");
  EXPECT_NE(finding("global_batch_samples: 4\n").find("sequence_tokens: is missing, and so is text_tokens"),
            std::string::npos);
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 1\ntext_tokens: 1\n").find("both given"),
            std::string::npos);
  EXPECT_EQ(finding("global_batch_samples: 4\nsequence_tokens: 0\n"),
            "w.yaml: sequence_tokens: is the number 0, a whole number from 1 to 100000000 is needed");
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 1\nimages_per_sample: 1\n")
                .find("patches_per_image: is missing"),
            std::string::npos);
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 1\nfrozen: [vison]\n").find("Did you mean 'vision'?"),
            std::string::npos);
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 1\nfrozen: [llm, llm]\n").find("twice"),
            std::string::npos);
  EXPECT_EQ(finding("global_batch_samples: 4\nsequence_tokens: 1\nprecision: b16\n"),
            "w.yaml: precision: is the text 'b16', fp64, fp32, bf16 or fp16 is needed. Did you mean 'bf16'?");
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 1\nimage_per_sample: 1\n")
                .find("Did you mean 'images_per_sample'?"),
            std::string::npos);
}

TEST(Workload, PackedRowsAttendWithinTheirSequencesAndAreAsLong) {
  const Model model = *kScenarios.model("llama3-8b");
  Workload whole = *kScenarios.workload("text_4k");
  whole.tokens = Distribution::weighted({{2048, 0.5}, {4096, 0.5}});
  Workload packed = whole;
  packed.sequences_per_sample = 4;
  const SampleLoad average = *average_sample(model, packed), usual = *average_sample(model, whole);
  EXPECT_EQ(average.llm, (Segments{{512, 2}, {1024, 2}}));
  EXPECT_EQ(num_tokens(average.llm), num_tokens(usual.llm));
  const Attention attention{.heads = 1, .kv_heads = 1, .head_dim = 1, .mask = Mask::kFull};
  EXPECT_DOUBLE_EQ(4 * num_attention_pairs(attention, average.llm), num_attention_pairs(attention, usual.llm));
  const TokenSpread spread = token_spread(model, packed, average, ModuleKind::kLlm);
  const TokenSpread usual_spread = token_spread(model, whole, usual, ModuleKind::kLlm);
  EXPECT_DOUBLE_EQ(spread.mean, usual_spread.mean);
  EXPECT_DOUBLE_EQ(spread.deviation, usual_spread.deviation);
  EXPECT_DOUBLE_EQ(spread.most, usual_spread.most);
  SampleDrawer drawer(model, packed, 3), usual_drawer(model, whole, 3);
  for (int i = 0; i < 8; ++i) {
    const Segments drawn = drawer.draw().llm;
    EXPECT_EQ(drawn.front().count, 4);
    EXPECT_EQ(num_tokens(drawn), num_tokens(usual_drawer.draw().llm));
  }
  const Result<Workload> again = read_workload({.source = "again", .root = to_json(packed)}, "");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->sequences_per_sample, 4);
  EXPECT_NE(finding("global_batch_samples: 4\nsequence_tokens: 8\nsequences_per_sample: 0.5\n")
                .find("sequences_per_sample: is the number 0.5"),
            std::string::npos);
}

TEST(Workload, SequencesAreOfATokenOrMore) {
  EXPECT_EQ(finding("global_batch_samples: 16\ntext_tokens: 4\nsequences_per_sample: 1000000\n"),
            "w.yaml: sequences_per_sample: is 1000000, but samples have 4 tokens on average, which make as many "
            "sequences at most. Give fewer, or more tokens.");
  EXPECT_EQ(finding("global_batch_samples: 16\nsequence_tokens: [2, 4096]\nsequences_per_sample: 12.5\n"), "");
  EXPECT_EQ(finding("global_batch_samples: 16\ntext_tokens: 1\nsequences_per_sample: 3\nimages_per_sample: 3\n"
                    "patches_per_image: 64\n"),
            "")
      << "media have tokens of their own";
}

TEST(Workload, ANameOfSeveralLinesIsRefused) {
  EXPECT_NE(finding("name: \"a\\nb\"\nglobal_batch_samples: 16\ntext_tokens: 4\n").find("w.yaml: name: is"),
            std::string::npos);
}

TEST(SampleLoad, ExpectationsAgreeWithDrawnSamples) {
  const Model model = *kScenarios.model("qwen2.5-omni-7b");
  const Workload workload = *kScenarios.workload("omni_short");
  const Result<SampleLoad> expected = average_sample(model, workload);
  ASSERT_TRUE(expected.ok()) << expected.error().message();

  std::mt19937_64 random(5);
  const auto draw = [&](const Distribution& d) {
    double u = std::uniform_real_distribution<double>(0, 1)(random);
    for (const auto& [value, probability] : d.outcomes()) {
      if ((u -= probability) < 0) return value;
    }
    return d.max();
  };
  constexpr int kSamples = 40'000;
  std::map<ModuleKind, double> flops;
  for (int i = 0; i < kSamples; ++i) {
    SampleLoad sample;
    double tokens = draw(workload.tokens);
    for (double n = draw(workload.images.pieces_per_sample); n > 0; --n) {
      const double patches = draw(workload.images.size);
      sample.vision.push_back({patches, 1});
      tokens += patches / 4;
    }
    for (double n = draw(workload.audio.pieces_per_sample); n > 0; --n) {
      const double frames = 100 * draw(workload.audio.size);
      sample.audio.push_back({std::floor((frames - 1) / 2) + 1, 1});
      tokens += std::floor((std::floor((frames - 1) / 2) + 1 - 2) / 2) + 1;
    }
    sample.llm.push_back({tokens, 1});
    for (const Module& module : model.modules)
      flops[module.kind] += forward_flops(module, sample.of(module.kind)) / kSamples;
  }
  for (const Module& module : model.modules) {
    EXPECT_NEAR(forward_flops(module, expected->of(module.kind)) / flops[module.kind], 1.0, 0.01)
        << name_of(module.kind);
  }
}

TEST(SampleLoad, AudioLengthsFollowTheConvolutionsAndThePooling) {
  const MediaGeometry media{
      .mel_frames_per_second = 100, .mel_frames_per_audio_position = 2, .audio_positions_per_embedding = 2};
  EXPECT_EQ(audio_length(media, 30).positions, 1500);
  EXPECT_EQ(audio_length(media, 30).embeddings, 750);
  EXPECT_EQ(audio_length(media, 0.05).positions, 3);
  EXPECT_EQ(audio_length(media, 0.05).embeddings, 1);
}

TEST(SampleLoad, WorkloadsThatDoNotFitTheModelAreRefused) {
  const Model model = *kScenarios.model("qwen2-vl-7b");
  const auto message = [&](const std::string& text) { return average_sample(model, *read(text)).error().message(); };
  EXPECT_EQ(message("global_batch_samples: 1\nsequence_tokens: 4096\nimages_per_sample: 1\npatches_per_image: 30\n"),
            "w.yaml: patches_per_image: has 30, but qwen2-vl-7b merges 4 patches into one embedding. Use multiples "
            "of 4.");
  EXPECT_NE(
      message(
          "global_batch_samples: 1\nsequence_tokens: [4096, 100]\nimages_per_sample: [0, 2]\npatches_per_image: 400\n")
          .find("sequence_tokens: can be as short as 100, but the media of a sample of qwen2-vl-7b can take 200 "
                "embeddings"),
      std::string::npos);
  EXPECT_EQ(
      message(
          "global_batch_samples: 1\nsequence_tokens: 64\naudio_clips_per_sample: [0, 2]\naudio_seconds_per_clip: 3\n"),
      "w.yaml: audio_clips_per_sample: has up to 2 clips, but qwen2-vl-7b has no audio encoder. Use a workload without "
      "clips, or a model with such an encoder.");
  EXPECT_EQ(average_sample(*kScenarios.model("llama3-8b"), *kScenarios.workload("vl_sft")).error().field,
            "images_per_sample");
  const Workload frozen = *read("global_batch_samples: 1\nsequence_tokens: 64\nfrozen: [vision, llm]\n");
  EXPECT_NE(training_step_flops(model, frozen, *average_sample(model, frozen))
                .error()
                .message()
                .find("frozen: names every module"),
            std::string::npos);
}

TEST(SampleLoad, TrainingFlopsFollowWhatIsFrozen) {
  const Model model = *kScenarios.model("tiny-vl");
  const std::string base =
      "global_batch_samples: 3\nsequence_tokens: 128\nimages_per_sample: 1\npatches_per_image: 64\nfrozen: ";
  const SampleLoad load = *average_sample(model, *read(base + "[]"));
  const Module& vision = *model.find(ModuleKind::kVision);
  const Module& llm = *model.find(ModuleKind::kLlm);
  const double v = forward_flops(vision, load.vision);
  const double entry = forward_flops(vision.entry, load.vision);
  const double l = forward_flops(llm, load.llm);
  double attention = 0;
  for (const Op& op : llm.distinct_layers[0].ops) {
    if (std::holds_alternative<Attention>(op.shape)) attention += 4 * forward_flops(op, load.llm);  // four layers
  }
  const auto flops = [&](const std::string& frozen) { return *training_step_flops(model, *read(base + frozen), load); };
  EXPECT_DOUBLE_EQ(flops("[]"), 3 * (3 * v - entry + 3 * l)) << "pixels need no gradient";
  EXPECT_DOUBLE_EQ(flops("[vision]"), 3 * (v + 3 * l)) << "a frozen encoder has no backward";
  EXPECT_DOUBLE_EQ(flops("[llm]"), 3 * (3 * v - entry + 2 * l + attention))
      << "the backward passes through a frozen llm";
}

TEST(Work, ActivationBytesOfALlamaLayerMatchTheSumByHand) {
  const Model model = *kScenarios.model("llama3-8b");
  const Block& layer = model.modules[0].distinct_layers[0];
  // Two norms keep their input and one statistic each; qkv and gate_up their input; attention q, k, v, output and one
  // statistic a head; the activation its two inputs and its output.
  const double elements = 4 * 4096 + (4096 + 1024 + 1024 + 4096) + 3 * 14336;
  EXPECT_EQ(saved_bytes_per_token(layer, Precision::kBf16), 2 * elements + 4 * (2 + 32));
  EXPECT_EQ(saved_bytes_per_token(layer, Precision::kFp32), 4 * elements + 4 * (2 + 32));
}

TEST(Work, TrafficCountsWeightsOnceAndRowsPerToken) {
  const Op op{
      .name = "up", .shape = Matmul{.in = 10, .out = 20, .bias_elements = 20, .experts = 3}, .rows = {.numerator = 2}};
  EXPECT_EQ(forward_traffic_bytes(op, {{5, 2}}, Precision::kBf16), 2.0 * (20 * 30 + 3 * 220));
  EXPECT_EQ(forward_flops(op, {{5, 2}}), 2.0 * 20 * 200);
  EXPECT_EQ(num_parameters(op), 660);
}

/// Images are as many tiles as have their patches, and each tile is a sequence with a row for the class.
TEST(Workload, ImagesOfModelsWithTilesAreWholeTiles) {
  const Model model = *kScenarios.model("internvl3-8b");
  const Workload workload = *kScenarios.workload("vl_sft");
  const Result<SampleLoad> load = average_sample(model, workload);
  ASSERT_TRUE(load.ok()) << load.error().message();
  double tiles = 0;
  for (const Segment& segment : load->vision) {
    EXPECT_EQ(segment.length, 1025);
    tiles += segment.count;
  }
  // 1.55 images, of which a fifth are two tiles and a tenth three.
  EXPECT_NEAR(tiles, 1.55 * 1.4, 1e-9);
  for (const auto& [patches, embeddings] : std::map<double, double>{{4, 256}, {1024, 256}, {1028, 512}, {4096, 1024}})
    EXPECT_EQ(image_embeddings(model.media, patches), embeddings) << patches;
  const Workload text_first = *read(
      "{global_batch_samples: 8, text_tokens: 100, images_per_sample: 2, patches_per_image: 1600, precision: bf16}");
  EXPECT_EQ(num_tokens(average_sample(model, text_first)->llm), 100 + 2 * 2 * 256);
}

}  // namespace
}  // namespace weft::workload_test
