#include "weft/spec/model_reader.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <tuple>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/program/dropping_ops.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

const std::string kModels = source_tree().string() + "/scenarios/models/";

Json config_of(const std::string& name) {
  return read_document(kModels + name + ".json")->root;
}

/// The message that reading the configuration ends in, or "" when it is fine.
std::string finding(const Json& config) {
  const Result<Model> model = read_model({.source = "config.json", .root = config}, "m");
  return model ? "" : model.error().message();
}

/// The finding after one field of a good configuration is replaced; `pointer` is a JSON pointer.
std::string finding_with(const std::string& name, const std::string& pointer, const Json& value) {
  Json config = config_of(name);
  config[Json::json_pointer(pointer)] = value;
  return finding(config);
}

TEST(ModelReader, EveryShippedModelIsReadable) {
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const Result<Model> model = read_model_file(entry.path());
    EXPECT_TRUE(model.ok()) << model.error().message();
    ++num_models;
  }
  EXPECT_GE(num_models, 10);
}

TEST(ModelReader, EveryWeightOfEveryShippedModelHasANameOfItsOwn) {
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    const Result<Model> model = read_model_file(entry.path());
    std::set<std::string> names;
    size_t num_names = 0;
    for (const Module& module : model->modules) {
      for (int64_t place = 0; place < num_blocks(module); ++place) {
        size_t num_weights = 0;
        for (const Op& op : block_at(module, place).ops) {
          const auto* matmul = std::get_if<Matmul>(&op.shape);
          const auto* norm = std::get_if<Norm>(&op.shape);
          const bool has_bias = (matmul != nullptr && matmul->bias_elements > 0) || (norm != nullptr && norm->has_bias);
          if (has_weights(op)) num_weights += has_bias ? 2 : 1;
        }
        const auto listed = weight_names(module, place);
        EXPECT_EQ(listed.size(), num_weights) << model->name << ", block " << place;
        for (const auto& together : listed) {
          names.insert(together.begin(), together.end());
          num_names += together.size();
        }
      }
    }
    EXPECT_EQ(names.size(), num_names) << model->name;
  }
}

TEST(ModelReader, ValuesThatNothingRunsAreNamed) {
  EXPECT_NE(finding_with("llama3-8b", "/hidden_act", "relu6").find("hidden_act: is the text 'relu6', silu, gelu"),
            std::string::npos);
  EXPECT_NE(finding_with("llama3-8b", "/rope_scaling", {{"rope_type", "spiral"}}).find("rope_scaling.rope_type"),
            std::string::npos);
  EXPECT_EQ(finding_with("llama3-8b", "/rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}), "")
      << "it can be planned";
}

TEST(ModelReader, FlatAndNestedFormsAreTheSameModel) {
  Json flat = config_of("qwen2-vl-72b");
  const Json text = flat["text_config"];
  flat.erase("text_config");
  for (const auto& [key, value] : text.items()) flat[key] = value;
  const Result<Model> a = read_model({.source = "", .root = flat}, "m");
  const Result<Model> b = read_model({.source = "", .root = config_of("qwen2-vl-72b")}, "m");
  ASSERT_TRUE(a.ok()) << a.error().message();
  EXPECT_EQ(num_parameters(*a), num_parameters(*b));
  EXPECT_EQ(num_parameters(*a), 73405560320);
}

TEST(ModelReader, LayersOfDifferentKindsKeepTheirPlaces) {
  const Result<Model> vl = read_model_file(kModels + "qwen2.5-vl-7b.json");
  const Module& vision = *vl->find(ModuleKind::kVision);
  ASSERT_EQ(vision.layers.size(), 32u);
  ASSERT_EQ(vision.distinct_layers.size(), 2u);
  for (size_t layer = 0; layer < 32; ++layer) {
    const bool is_full = layer == 7 || layer == 15 || layer == 23 || layer == 31;
    EXPECT_EQ(vision.distinct_layers[vision.layers[layer]].name,
              is_full ? "layer, full attention" : "layer, windowed attention")
        << layer;
  }

  Json moe = config_of("qwen3-30b-a3b");
  moe["num_hidden_layers"] = 6;
  moe["decoder_sparse_step"] = 2;
  moe["mlp_only_layers"] = {3};
  const Result<Model> mixed = read_model({.source = "", .root = moe}, "m");
  std::string pattern;
  for (const size_t kind : mixed->modules[0].layers)
    pattern += mixed->modules[0].distinct_layers[kind].name == "moe layer" ? 'M' : 'd';
  EXPECT_EQ(pattern, "dMdddM");
}

TEST(ModelReader, SlidingWindowsFollowTheirFlagOrTheListOfLayers) {
  const auto masks = [](const Json& config) {
    const Result<Model> model = read_model({.source = "", .root = config}, "m");
    std::string pattern;
    for (const size_t kind : model->modules.back().layers) {
      for (const Op& op : model->modules.back().distinct_layers[kind].ops) {
        if (const auto* attention = std::get_if<Attention>(&op.shape))
          pattern += attention->mask == Mask::kSliding ? 's' : 'f';
      }
    }
    return pattern;
  };
  Json config = config_of("qwen3-8b");
  config["num_hidden_layers"] = 4;
  config["sliding_window"] = 128;
  config["max_window_layers"] = 1;
  EXPECT_EQ(masks(config), "ffff") << "use_sliding_window is off";
  config["use_sliding_window"] = true;
  EXPECT_EQ(masks(config), "fsss");
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_EQ(masks(config), "sffs");
}

TEST(ModelReader, MistakesNameTheField) {
  EXPECT_EQ(finding_with("llama3-8b", "/hidden_size", -1),
            "config.json: hidden_size: is -1, a whole number from 1 to 262144 is needed");
  EXPECT_EQ(finding_with("llama3-8b", "/num_hidden_layers", "32"),
            "config.json: num_hidden_layers: is the text '32', a whole number from 1 to 10000 is needed");
  EXPECT_EQ(finding_with("qwen2-vl-7b", "/text_config/num_key_value_heads", 3),
            "config.json: text_config.num_key_value_heads: is 3, which does not divide num_attention_heads 28");
  EXPECT_EQ(finding_with("llama3-8b", "/num_attention_heads", 24),
            "config.json: num_attention_heads: is 24, which does not divide hidden_size 4096. "
            "Every head needs the same whole number of elements.");
  EXPECT_EQ(finding_with("qwen2-vl-7b", "/text_config/hidden_size", 3585),
            "config.json: text_config.num_attention_heads: is 28, which does not divide hidden_size 3585. "
            "Every head needs the same whole number of elements.");
  EXPECT_EQ(finding_with("qwen2-vl-7b", "/vision_config/num_heads", 15),
            "config.json: vision_config.num_heads: is 15, which does not divide embed_dim 1280. "
            "Every head needs the same whole number of elements.");
  EXPECT_EQ(finding_with("qwen2-vl-7b", "/vision_config/hidden_size", 4096),
            "config.json: vision_config.hidden_size: is 4096, but the language model's hidden_size is 3584. "
            "Image embeddings take the place of token embeddings, so the two must be equal.");
  EXPECT_EQ(finding_with("qwen2.5-vl-7b", "/vision_config/window_size", 20),
            "config.json: vision_config.window_size: is 20 pixels, but one merged patch has 14 × 2 = 28");
  EXPECT_EQ(finding_with("qwen2.5-vl-7b", "/vision_config/fullatt_block_indexes", {7, -1}),
            "config.json: vision_config.fullatt_block_indexes[1]: is -1, a whole number from 0 to 10000 is needed");
  EXPECT_EQ(finding_with("qwen2.5-omni-7b", "/audio_config/encoder_attention_heads", 7),
            "config.json: audio_config.encoder_attention_heads: is 7, which does not divide d_model 1280. "
            "Every head needs the same whole number of elements.");
  EXPECT_EQ(finding_with("qwen3-30b-a3b", "/num_experts_per_tok", 200),
            "config.json: num_experts_per_tok: is 200, but there are only 128 experts");
  EXPECT_EQ(
      finding_with("qwen3-30b-a3b", "/num_local_experts", 64),
      "config.json: num_experts: is 128, but num_local_experts is 64. They are two names of one number. Leave one "
      "out.");
  EXPECT_EQ(finding_with("qwen3-30b-a3b", "/num_local_experts", 128), "");
  EXPECT_EQ(finding_with("qwen3-8b", "/rope_parameters", {{"rope_type", "default"}, {"rope_theta", 10000.0}}),
            "config.json: rope_theta: is 1000000, but rope_parameters.rope_theta is 10000. They are the same number. "
            "Leave one out.");
  EXPECT_EQ(finding_with("qwen3-8b", "/rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1e6}}), "");
  EXPECT_EQ(finding_with("qwen3-8b", "/layer_types", Json::array({"full_attention"})),
            "config.json: layer_types: has 1 entries, but num_hidden_layers is 36");
  EXPECT_EQ(finding_with("qwen2-vl-7b", "/vision_config", 3),
            "config.json: vision_config: is the number 3, a mapping of fields is needed");
  EXPECT_EQ(finding_with("llama3-8b", "/tie_word_embeddings", "no"),
            "config.json: tie_word_embeddings: is the text 'no', true or false is needed");
}

TEST(ModelReader, ContradictionsOfRowsThatEnterSeveralLayersAreNamed) {
  EXPECT_EQ(
      finding_with("qwen3-vl-4b", "/vision_config/deepstack_visual_indexes", {5, 24}),
      "config.json: vision_config.deepstack_visual_indexes: names layer 24, but depth is 24, so that the last one "
      "is 23");
  EXPECT_EQ(finding_with("qwen3-vl-4b", "/vision_config/deepstack_visual_indexes", {5, 11, 5}),
            "config.json: vision_config.deepstack_visual_indexes: names layer 5 twice");
  EXPECT_EQ(finding_with("qwen3-vl-4b", "/text_config/num_hidden_layers", 2),
            "config.json: vision_config.deepstack_visual_indexes: names 3 layers, each of which is added behind one of "
            "the language model's, of which there are 2");
  EXPECT_EQ(
      finding_with("qwen3-vl-4b", "/vision_config/num_position_embeddings", 2300),
      "config.json: vision_config.num_position_embeddings: is 2300, but positions are those of a square, so that a "
      "square number is needed, like 2304");
  EXPECT_EQ(finding_with("qwen3-vl-4b", "/text_config/rope_scaling/mrope_section", {24, 20, 19}),
            "config.json: text_config.rope_scaling.mrope_section: adds up to 63, but heads of 128 have 64 frequencies");
  EXPECT_EQ(finding_with("qwen3-vl-4b", "/text_config/rope_scaling/mrope_section", {32, 32}),
            "config.json: text_config.rope_scaling.mrope_section: has 2 entries, but there are three axes");
  EXPECT_EQ(
      finding_with("qwen3-vl-4b", "/text_config/rope_scaling/mrope_interleaved", false),
      "config.json: text_config.rope_scaling.mrope_interleaved: is false, but the axes of this family's positions "
      "take turns. Leave the field out, or use a model of another family.");
  EXPECT_NE(finding_with("qwen3-vl-4b", "/text_config/rope_scaling/rope_type", "spiral").find("rope_scaling.rope_type"),
            std::string::npos);
  EXPECT_EQ(finding_with("qwen3-vl-30b-a3b", "/text_config/num_experts_per_tok", 200),
            "config.json: text_config.num_experts_per_tok: is 200, but there are only 128 experts");
}

TEST(ModelReader, AnUnknownFamilyIsNamedWithAGuess) {
  EXPECT_NE(finding_with("qwen2-vl-7b", "/model_type", "qwen2_5_v1").find("Did you mean 'qwen2_5_vl'?"),
            std::string::npos);
  EXPECT_NE(finding_with("qwen2-vl-7b", "/model_type", "gpt_neox").find("known are gpt2, llama, qwen2"),
            std::string::npos);
  EXPECT_EQ(finding(Json::object()), "config.json: model_type: is missing. Add it.");
  EXPECT_EQ(finding(Json::array()),
            "config.json: is a list, a mapping of fields is needed. Check that this is the file you meant.");
}

TEST(ModelReader, SizesWhoseProductOverflowsAreRefusedBeforeCounting) {
  Json config = config_of("qwen3-30b-a3b");
  config["hidden_size"] = 1 << 18;
  config["moe_intermediate_size"] = 1 << 21;
  config["num_experts"] = 1 << 14;
  config["num_hidden_layers"] = 10'000;
  EXPECT_NE(finding(config).find("num_hidden_layers: with these sizes the model would have 2.7e+20 parameters"),
            std::string::npos)
      << finding(config);
}

TEST(ModelReader, AFolderNeedsAConfig) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("weft_model_test_" + std::to_string(::getpid())) / "my-model";
  std::filesystem::create_directories(folder);
  EXPECT_NE(read_model_file(folder).error().message().find("my-model: is a folder without a config.json"),
            std::string::npos);
  std::filesystem::copy_file(kModels + "tiny-vl.json", folder / "config.json");
  EXPECT_EQ(read_model_file(folder)->name, "my-model");
  EXPECT_EQ(read_model_file(folder / "")->name, "my-model") << "with a final slash too";
  std::filesystem::remove_all(folder.parent_path());
}

TEST(ModelReader, AQuantisedModelIsPlannedAndNotRun) {
  Json config = config_of("llama3-8b");
  config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", 4}};
  const Result<Model> model = read_model({.source = "config.json", .root = config}, "m");
  ASSERT_TRUE(model.ok()) << model.error().message();
  ASSERT_TRUE(model->numbers.llm.not_run);
  EXPECT_EQ(model->numbers.llm.not_run->field, "quantization_config");
  EXPECT_NE(model->numbers.llm.not_run->problem.find("'gptq'"), std::string::npos);
}

/// Where WhisperEncoderLayer drops, which the family's audio layers were made of.
TEST(ModelReader, DropoutOfSoundIsOfTheOperatorsThatWhisperDropsBehind) {
  Json config = config_of("qwen2.5-omni-7b");
  Json& audio = (config.contains("thinker_config") ? config["thinker_config"] : config)["audio_config"];
  audio["attention_dropout"] = 0.125;
  audio["dropout"] = 0.5;
  audio["activation_dropout"] = 0.25;
  const Result<Model> model = read_model({.source = "config.json", .root = config}, "m");
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_FALSE(model->numbers.llm.not_run);
  const auto is_audio = [](const Module& module) { return module.kind == ModuleKind::kAudio; };
  const auto sound = std::find_if(model->modules.begin(), model->modules.end(), is_audio);
  ASSERT_NE(sound, model->modules.end());
  std::map<std::string, double> found;
  for (const Op& op : block_at(*sound, 1).ops)
    if (dropout_of(op) > 0) found[op.name] = dropout_of(op);
  EXPECT_EQ(found, (std::map<std::string, double>{
                       {"attention.core", 0.125}, {"attention.sum", 0.5}, {"mlp.activation", 0.25}, {"mlp.sum", 0.5}}));
}

/// Where InternVLVisionModel has its modules of dropout: behind places, attention's projection and the MLP.
TEST(ModelReader, ATowersDropoutIsOfTheOperatorsThatTransformersDropsBehind) {
  Json config = config_of("internvl3-8b");
  config["vision_config"]["attention_dropout"] = 0.125;
  config["vision_config"]["hidden_dropout_prob"] = 0.25;
  config["vision_config"]["projection_dropout"] = 0.5;
  const Result<Model> model = read_model({.source = "config.json", .root = config}, "m");
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_FALSE(model->numbers.llm.not_run);
  std::map<std::string, double> found;
  const Module& tower = model->modules[0];
  for (const Block* block : {&tower.entry, &block_at(tower, 1), &tower.exit}) {
    for (const Op& op : block->ops)
      if (dropout_of(op) > 0) found[op.name] = dropout_of(op);
  }
  EXPECT_EQ(found,
            (std::map<std::string, double>{
                {"embedding.dropout", 0.25}, {"attention.core", 0.125}, {"attention.sum", 0.5}, {"mlp.sum", 0.25}}));
  for (const std::string field : {"hidden_dropout_prob", "projection_dropout"}) {
    const std::string problem = finding_with("internvl3-8b", "/vision_config/" + field, 1.5);
    EXPECT_NE(problem.find("vision_config." + field), std::string::npos) << problem;
  }
}

TEST(ModelReader, ATowerOverTilesIsReadOrNamed) {
  const char* name = "internvl3-8b";
  EXPECT_EQ(finding(config_of(name)), "");
  EXPECT_EQ(finding_with(name, "/vision_config/image_size", 448), "");
  for (const auto& [pointer, value, word] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"/vision_config/image_size", Json({448, 224}), "vision_config.image_size"},
           {"/vision_config/image_size", 450, "vision_config.image_size"},
           {"/vision_config/patch_size", Json({14, 16}), "vision_config.patch_size"},
           {"/vision_config/norm_type", "batch_norm", "vision_config.norm_type"},
           {"/vision_config/hidden_act", "relu6", "vision_config.hidden_act"},
           {"/vision_config/num_attention_heads", 15, "vision_config.num_attention_heads"},
           {"/downsample_ratio", 0.3, "downsample_ratio"},
           {"/image_seq_length", 255, "image_seq_length"},
           {"/vision_feature_layer", Json({-1, -2}), "vision_feature_layer"},
           {"/vision_feature_layer", 25, "vision_feature_layer"},
           {"/vision_feature_select_strategy", "full", "vision_feature_select_strategy"},
           {"/text_config/model_type", "llama", "text_config.model_type"}}) {
    EXPECT_NE(finding_with(name, pointer, value).find(word), std::string::npos) << pointer << " " << value.dump();
  }
}

/// A tile of 448 × 448 pixels has 1,024 patches and a row for the class, and gives 256 rows.
TEST(ModelReader, TilesAreCountedWithTheirClass) {
  const Result<Model> model = read_model_file(kModels + "internvl3-8b.json");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->media.patches_per_tile, 1024);
  EXPECT_EQ(model->media.rows_per_tile(), 1025);
  EXPECT_EQ(model->modules[0].output_rows, (RowsPerToken{256, 1025}));
}

TEST(ModelReader, ParametersThatOverflowInOneBlockAreRefused) {
  Json branches = config_of("qwen3-vl-4b");
  Json& text = branches["text_config"];
  text = {{"hidden_size", 262'144},   {"num_attention_heads", 16'384},
          {"num_key_value_heads", 1}, {"head_dim", 2},
          {"num_hidden_layers", 10},  {"intermediate_size", 1},
          {"vocab_size", 1},          {"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {1, 0, 0}}}}};
  branches["vision_config"] = {{"depth", 20},
                               {"hidden_size", 262'144},
                               {"num_heads", 16'384},
                               {"out_hidden_size", 262'144},
                               {"spatial_merge_size", 64},
                               {"intermediate_size", 1},
                               {"deepstack_visual_indexes", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}};
  EXPECT_NE(finding(branches).find("with these sizes the model would have 1.3e+19 parameters"), std::string::npos)
      << finding(branches);
}

TEST(ModelReader, AProgramOfMoreParametersThanAModelMayHaveIsRefused) {
  // 1100 weights of 9e15 elements: each can be counted, the sum cannot.
  std::string program =
      "weft_program 1 huge\ndim b 32\ndim i 94906264\ndim f 94906264\ndim o 4\ninput x [b i]\ndata t [b]\n";
  std::string last = "x";
  for (int i = 0; i < 1'100; ++i) {
    const std::string in = i % 2 == 0 ? "i" : "f", out = i % 2 == 0 ? "f" : "i", n = std::to_string(i);
    program += "weight w" + n + " [" + out + " " + in + "]\nh" + n + " = einsum(" + last + ", w" + n + ") : b " + in +
               ", " + out + " " + in + " -> b " + out + "\n";
    last = "h" + n;
  }
  program +=
      "weight head [o i]\nz = einsum(" + last + ", head) : b i, o i -> b o\nl = cross_entropy(z, t) : b o, b -> b\n";
  const std::string message = finding({{"model_type", "weft_program"}, {"program", program}});
  EXPECT_NE(message.find("parameters, at most 1e+17 are supported"), std::string::npos) << message;
}

TEST(ModelReader, AFolderOrFileWhoseNameIsNoTextGivesANameThatIs) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("weft_model_names_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const std::string name : {"bad\xff", "esc\x1b[31m\nX"}) {
    std::filesystem::copy_file(kModels + "llama3-8b.json", folder / (name + ".json"));
    const auto model = read_model_file(folder / (name + ".json"));
    ASSERT_TRUE(model.ok()) << model.error().message();
    EXPECT_NO_THROW((void)Json(model->name).dump());
    EXPECT_EQ(model->name.find_first_of("\n\x1b"), std::string::npos);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace weft
