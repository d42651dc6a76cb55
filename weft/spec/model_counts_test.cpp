// Parameters and FLOPs against Hugging Face's own implementation (tests/parity/count_models.py makes the fixture), and
// parameters against public counts of released models.
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/sample_load.h"
#include "weft/spec/work.h"

namespace weft {
namespace {

const std::string kSource = source_tree();

const Json& cases() {
  static const Document fixture = *read_document(kSource + "/tests/parity/model_counts.json");
  return fixture.root["cases"];
}

Model model_of(const Json& config) {
  const Result<Model> model = read_model({.source = "case", .root = config}, "case");
  EXPECT_TRUE(model.ok()) << model.error().message() << "\n" << config.dump();
  return *model;
}

TEST(ModelCounts, ParametersEqualHuggingFaceForEveryModuleOfEveryCase) {
  ASSERT_GE(cases().size(), 70u);
  for (const Json& one : cases()) {
    const Model model = model_of(one["config"]);
    Json counts = Json::object();
    for (const Module& module : model.modules) counts[std::string(name_of(module.kind))] = num_parameters(module);
    counts["total"] = num_parameters(model);
    for (const auto& [name, expected] : one["parameters"].items())
      EXPECT_EQ(counts[name], expected) << name << " of " << one["config"].dump();
    EXPECT_EQ(counts.size(), one["parameters"].size());
  }
}

/// The fixture's attention computes masked pairs too.
Module with_full_attention(Module module) {
  for (Block& kind : module.distinct_layers) {
    for (Op& op : kind.ops) {
      if (auto* attention = std::get_if<Attention>(&op.shape);
          attention != nullptr && attention->mask == Mask::kCausal) {
        attention->mask = Mask::kFull;
      }
    }
  }
  return module;
}

TEST(ModelCounts, FlopsEqualPyTorchsCounterForEveryModuleOfEveryCase) {
  int num_compared = 0;
  for (const Json& one : cases()) {
    if (!one.contains("run")) continue;
    const Model model = model_of(one["config"]);
    const Json& run = one["run"];
    for (const Module& module : model.modules) {
      Segments segments;
      if (module.kind == ModuleKind::kLlm) segments.push_back({run["tokens"].get<double>(), 1});
      if (module.kind == ModuleKind::kVision) {
        for (const Json& patches : run["patches"]) {
          for (const Segment& segment : image_segments(model.media, patches.get<double>())) segments.push_back(segment);
        }
      }
      if (module.kind == ModuleKind::kAudio) {
        const double seconds = run["mel_frames"].get<double>() / static_cast<double>(model.media.mel_frames_per_second);
        segments.push_back({audio_length(model.media, seconds).positions, 1});
      }
      const Module counted = with_full_attention(module);
      const std::string name(name_of(module.kind));
      const double forward = forward_flops(counted, segments);
      EXPECT_EQ(forward, run["forward_flops"][name].get<double>()) << name << " of " << one.dump();
      EXPECT_EQ(forward + backward_flops(counted, segments, {}), run["training_flops"][name].get<double>())
          << name << " of " << one.dump();
      if (module.kind == ModuleKind::kLlm) {
        EXPECT_EQ(forward + backward_flops(counted, segments, {.weights = false}),
                  run["frozen_llm_flops"].get<double>())
            << one.dump();
      }
      ++num_compared;
    }
  }
  EXPECT_GE(num_compared, 90);
}

struct PublicCount {
  const char* name;
  int64_t vision;
  int64_t audio;
  int64_t llm;
};

TEST(ModelCounts, NamedModelsHaveTheirPublicParameterCounts) {
  const PublicCount counts[] = {
      {"qwen2-vl-2b", 665271296, 0, 1543714304},
      {"qwen2-vl-7b", 675759104, 0, 7615616512},
      {"qwen2-vl-72b", 699356672, 0, 72706203648},
      {"qwen2.5-vl-3b", 668684288, 0, 3085938688},
      {"qwen2.5-vl-7b", 676550144, 0, 7615616512},
      {"qwen2.5-omni-7b", 676550144, 639647232, 7615616512},
      {"llama3-8b", 0, 0, 8030261248},
      {"qwen3-30b-a3b", 0, 0, 30532122624},
      {"qwen2.5-vl-32b", 688841984, 0, 32763876352},
      {"qwen2.5-vl-72b", 704573696, 0, 72706203648},
      {"tiny-vl", 324032, 0, 919680},
      {"small-vl", 6483328, 0, 15347072},
      {"llama3-70b", 0, 0, 70553706496},
      {"qwen2.5-7b", 0, 0, 7615616512},
      {"qwen3-8b", 0, 0, 8190735360},
      {"qwen3-235b-a22b", 0, 0, 235093634560},
      {"internvl3-8b", 331552768, 0, 7612820992},
      {"qwen3-vl-4b", 415347712, 0, 4022468096},
      {"qwen3-vl-30b-a3b", 538631408, 0, 30532122624},
  };
  for (const PublicCount& count : counts) {
    const Result<Model> model = read_model_file(kSource + "/scenarios/models/" + count.name + ".json");
    ASSERT_TRUE(model.ok()) << model.error().message();
    const auto parameters_of = [&](ModuleKind kind) {
      const Module* module = model->find(kind);
      return module == nullptr ? int64_t{0} : num_parameters(*module);
    };
    EXPECT_EQ(parameters_of(ModuleKind::kVision), count.vision) << count.name;
    EXPECT_EQ(parameters_of(ModuleKind::kAudio), count.audio) << count.name;
    EXPECT_EQ(parameters_of(ModuleKind::kLlm), count.llm) << count.name;
  }
}

TEST(ModelCounts, Gpt2HasItsPublicParameterCounts) {
  const auto count = [](const Json& sizes) {
    Json config = sizes;
    config["model_type"] = "gpt2";
    return num_parameters(model_of(config));
  };
  EXPECT_EQ(count(Json::object()), 124439808);
  EXPECT_EQ(count({{"n_embd", 1024}, {"n_layer", 24}, {"n_head", 16}}), 354823168);
  EXPECT_EQ(count({{"n_embd", 1280}, {"n_layer", 36}, {"n_head", 20}}), 774030080);
  EXPECT_EQ(count({{"n_embd", 1600}, {"n_layer", 48}, {"n_head", 25}}), 1557611200);
}

}  // namespace
}  // namespace weft
