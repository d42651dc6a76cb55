#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/cli/tensor_files.h"
#include "tests/cli/training_runs.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft {
namespace {

using std::filesystem::path;

const path kFixtures = source_tree() / "tests/parity/fixtures";
const path kLlama = kFixtures / "llama_tied";
const path kVision = kFixtures / "qwen2_vl_tied";
const path kOmni = kFixtures / "qwen2_5_omni";

Json json_of(const path& file) {
  Json json;
  std::ifstream(file) >> json;
  return json;
}

/// The tokens that Hugging Face generates.
std::vector<int64_t> greedy_of(const path& model, const std::string& name) {
  return json_of(model / (name + ".json"))["greedy"]["tokens"].get<std::vector<int64_t>>();
}

std::vector<int64_t> ids_of(const path& model, const std::string& name) {
  return read_stored(model / (name + ".safetensors"))["input_ids"].values<int64_t>();
}

Json predicted(const path& model, const std::string& prompt, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"predict", "--model", model.string(), "--prompt-file", prompt, "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return run.exit_status == 0 ? Json::parse(run.out) : Json();
}

/// What the program says to input that is wrong: one line and nothing else.
std::string refusal(const path& model, const std::string& prompt, std::vector<std::string> more = {},
                    int exit_status = 2) {
  std::vector<std::string> arguments = {"predict", "--model", model.string(), "--prompt-file", prompt};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, exit_status) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_EQ(run.err.find("Exception raised"), std::string::npos) << run.err;
  return run.err;
}

testing::AssertionResult says(const std::string& text, const std::string& what) {
  if (text.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << "does not say\n" << what;
}
#define EXPECT_SAYS(text, what) EXPECT_TRUE(says(text, what))

/// A fixture's model in a folder of its own, to be damaged.
class ModelCopy {
 public:
  explicit ModelCopy(const path& fixture) {
    for (const char* name : {"config.json", "model.safetensors"}) {
      std::filesystem::copy_file(fixture / name, folder_.path() / name);
    }
  }
  const path& at() const { return folder_.path(); }
  void change_config(const std::string& patch) const {
    Json config = json_of(at() / "config.json");
    config.merge_patch(Json::parse(patch));
    folder_.write("config.json", config.dump());
  }
  void change_weights(const std::function<void(StoredTensors&)>& change) const {
    StoredTensors weights = read_stored(at() / "model.safetensors");
    change(weights);
    write_stored(at() / "model.safetensors", weights);
  }
  std::string write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }

 private:
  TemporaryFolder folder_;
};

class Predict : public testing::Test {
 protected:
  std::string prompt(const std::string& text) const { return folder_.write("prompt.json", text); }
  std::string prompt(const std::vector<int64_t>& ids) const { return prompt(Json{{"input_ids", ids}}.dump()); }
  /// A case's inputs, changed.
  std::string tensors(const path& model, const std::string& name,
                      const std::function<void(StoredTensors&)>& change = {}) const {
    StoredTensors inputs = read_case_inputs(model / (name + ".safetensors"));
    if (change) change(inputs);
    write_stored(folder_.path() / "prompt.safetensors", inputs);
    return (folder_.path() / "prompt.safetensors").string();
  }

  TemporaryFolder folder_;
};

TEST_F(Predict, PrintsTheTokensOfHuggingFace) {
  const Json json = predicted(kLlama, prompt(ids_of(kLlama, "single")), {"--max-new-tokens", "16", "--ignore-end"});
  ASSERT_EQ(json["prompts"].size(), 1u);
  EXPECT_EQ(json["prompts"][0]["input_tokens"], 17);
  EXPECT_EQ(json["prompts"][0]["tokens"].get<std::vector<int64_t>>(), greedy_of(kLlama, "single"));
  EXPECT_EQ(json["prompts"][0]["stopped_by"], "length");
  EXPECT_EQ(json["dtype"], "fp32");
  EXPECT_GT(json["prefill_ms"].get<double>(), 0);
  EXPECT_GT(json["tokens_per_s"].get<double>(), 0);
}

TEST_F(Predict, TextSaysTheSame) {
  const std::string file = prompt(ids_of(kLlama, "single"));
  const ProgramRun run = run_weft({"predict", "--model", kLlama.string(), "--prompt-file", file, "--max-new-tokens",
                                   "3", "--ignore-end", "--threads", "1"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out.substr(0, run.out.find("fp32")), "prompt 0: 17 tokens, then 3 new ones\n21 59 59\n");
}

TEST_F(Predict, OneTokenHasNoRate) {
  const Json json = predicted(kLlama, prompt(ids_of(kLlama, "single")), {"--max-new-tokens", "1"});
  EXPECT_EQ(json["prompts"][0]["tokens"].size(), 1u);
  EXPECT_TRUE(json["tokens_per_s"].is_null());
}

TEST_F(Predict, AFileOfTensorsHoldsSeveralPrompts) {
  const Json json = predicted(kVision, tensors(kVision, "mixed"), {"--max-new-tokens", "16", "--ignore-end"});
  const auto lengths = read_stored(kVision / "mixed.safetensors")["lengths"].values<int64_t>();
  ASSERT_EQ(json["prompts"].size(), lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(json["prompts"][i]["input_tokens"], lengths[i]);
  const size_t sample = json_of(kVision / "mixed.json")["greedy"]["prompt_sample"].get<size_t>();
  EXPECT_EQ(json["prompts"][sample]["tokens"].get<std::vector<int64_t>>(), greedy_of(kVision, "mixed"));
}

TEST_F(Predict, JsonPointsToTensorsBesideIt) {
  StoredTensors inputs = read_case_inputs(kOmni / "audio_in_video.safetensors");
  write_stored(folder_.path() / "media.safetensors", inputs);
  const Json json = predicted(kOmni, prompt(R"({"prompts": [{"input_ids": [5, 6]}, {"tensors": "media.safetensors",
                       "use_audio_in_video": true, "max_new_tokens": 16}], "max_new_tokens": 2})"),
                              {"--ignore-end"});
  const size_t sample = json_of(kOmni / "audio_in_video.json")["greedy"]["prompt_sample"].get<size_t>();
  EXPECT_EQ(json["prompts"][0]["tokens"].size(), 2u);
  EXPECT_EQ(json["prompts"][1 + sample]["tokens"].get<std::vector<int64_t>>(), greedy_of(kOmni, "audio_in_video"));
}

TEST_F(Predict, StopsAtTheEndThatTheModelNames) {
  const ModelCopy model(kLlama);
  const std::string file = prompt(ids_of(kLlama, "single"));
  model.change_config(R"({"eos_token_id": 15})");
  Json json = predicted(model.at(), file);
  EXPECT_EQ(json["prompts"][0]["tokens"], Json::parse("[21, 59, 59, 59, 59, 15]"));
  EXPECT_EQ(json["prompts"][0]["stopped_by"], "end");
  EXPECT_EQ(predicted(model.at(), file, {"--ignore-end"})["prompts"][0]["tokens"].size(), 64u);

  model.write("generation_config.json", R"({"eos_token_id": [94, 59]})");
  json = predicted(model.at(), file);
  EXPECT_EQ(json["prompts"][0]["tokens"], Json::parse("[21, 59]"));

  model.write("generation_config.json", R"({"eos_token_id": "2"})");
  EXPECT_SAYS(refusal(model.at(), file), "generation_config.json: eos_token_id: is the text '2'");
}

TEST_F(Predict, ComputesInTheTypeAskedForOrSaved) {
  const std::string file = prompt(ids_of(kLlama, "single"));
  const std::vector<std::string> length = {"--max-new-tokens", "16", "--ignore-end"};
  const Json exact =
      predicted(kLlama, file, {"--max-new-tokens", "16", "--ignore-end", "--dtype", "fp64", "--device", "cpu"});
  EXPECT_EQ(exact["dtype"], "fp64");
  EXPECT_EQ(exact["prompts"][0]["tokens"].get<std::vector<int64_t>>(), greedy_of(kLlama, "single"));
  const ModelCopy model(kLlama);
  model.change_config(R"({"dtype": null, "torch_dtype": "bfloat16"})");
  EXPECT_EQ(predicted(model.at(), file, length)["dtype"], "bf16");
  model.change_config(R"({"torch_dtype": "float16"})");
  EXPECT_EQ(predicted(model.at(), file, length)["dtype"], "fp32");
}

TEST_F(Predict, TheContextLimitsWhatMayBeAskedFor) {
  const std::vector<int64_t> long_prompt(500, 7);
  EXPECT_EQ(predicted(kLlama, prompt(long_prompt), {"--ignore-end"})["prompts"][0]["tokens"].size(), 12u);
  EXPECT_SAYS(
      refusal(kLlama, prompt(long_prompt), {"--max-new-tokens", "13"}),
      "prompt.json: max_new_tokens: is 13, but after a prompt of 500 tokens the model's max_position_embeddings "
      "512 leaves room for 12");
  EXPECT_SAYS(refusal(kLlama, prompt(std::vector<int64_t>(512, 7))), "leaves no room for a new one");
}

TEST_F(Predict, WrongFlagsAreRefused) {
  const std::string file = prompt(std::vector<int64_t>{1, 2});
  EXPECT_SAYS(refusal(kLlama, file, {"--dtype", "fp16"}), "--dtype: is 'fp16', fp32, fp64 or bf16 is needed");
  EXPECT_SAYS(refusal(kLlama, file, {"--device", "cude"}), "Did you mean 'cuda'?");
  EXPECT_SAYS(refusal(kLlama, file, {"--threads", "0"}), "--threads: is '0', a whole number from 1");
  EXPECT_SAYS(refusal(kLlama, file, {"--max-new-tokens", "-1"}), "--max-new-tokens");
  EXPECT_SAYS(refusal(kLlama, file, {"--max-new-token", "1"}), "--max-new-token");
}

TEST_F(Predict, WrongPromptFilesAreRefused) {
  EXPECT_SAYS(refusal(kLlama, "/nowhere.json"), "/nowhere.json");
  EXPECT_SAYS(refusal(kLlama, "/nowhere.safetensors"), "/nowhere.safetensors");
  EXPECT_SAYS(refusal(kLlama, folder_.path().string()), folder_.path().string());
  EXPECT_SAYS(refusal(kLlama, prompt("ids: [1]")), "prompt.json: ");
  EXPECT_SAYS(refusal(kLlama, prompt("")), "prompt.json: ");
  EXPECT_SAYS(refusal(kLlama, prompt("[1, 2]")), "prompt.json: ");
  EXPECT_SAYS(refusal(kLlama, prompt("{}")), "input_ids: is missing");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": []})")), "input_ids: is empty");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": "1 2"})")),
              "input_ids: is the text '1 2', a list of token ids is needed. Turn words into ids");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": [1, 2.5]})")), "input_ids[1]");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": [[1, 2]]})")), "input_ids[0]: is a list");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_id": [1]})")), "Did you mean 'input_ids'?");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": [1], "max_new_tokens": 0})")), "max_new_tokens: is");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"prompts": []})")), "prompts: is empty");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"prompts": [[1, 2]]})")), "prompts: is a list of other things");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"prompts": [{"input_ids": [1]}], "input_ids": [1]})")),
              "input_ids: is not a known field");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": [1], "tensors": "gone.safetensors"})")), "gone.safetensors");
  write_stored(folder_.path() / "t.safetensors", {{"input_ids", integers({1})}});
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"input_ids": [1], "tensors": "t.safetensors"})")), "input_ids: is given here");
}

TEST_F(Predict, WrongTokensAreRefused) {
  EXPECT_SAYS(refusal(kLlama, prompt(std::vector<int64_t>{1, 95})),
              "prompt.json: input_ids[1]: is 95, but the model's vocabulary has the ids 0 to 94");
  EXPECT_SAYS(refusal(kLlama, prompt(std::vector<int64_t>{1, -1})), "input_ids[1]: is -1");
  EXPECT_SAYS(refusal(kLlama, prompt(R"({"prompts": [{"input_ids": [1]}, {"input_ids": [1, 400]}]})")),
              "prompts[1].input_ids[1]: is 400");
  const auto stored = [&](const StoredTensors& all) {
    write_stored(folder_.path() / "t.safetensors", all);
    return refusal(kLlama, (folder_.path() / "t.safetensors").string());
  };
  EXPECT_SAYS(stored({{"input_ids", integers({-3, 1})}}), "t.safetensors: input_ids[0]: is -3");
  EXPECT_SAYS(stored({{"input_ids", floats({2}, 1)}}), "input_ids: is Float of shape [2], expected integers");
  EXPECT_SAYS(stored({{"input_ids", integers({1, 2, 3, 4}, {2, 2})}}), "expected integers with 1 dims");
  EXPECT_SAYS(stored({{"input_ids", StoredTensor{.type = WeightType::kI64, .shape = {}, .bytes = std::string(8, 0)}}}),
              "expected integers with 1 dims");
  EXPECT_SAYS(stored({{"input_ids", StoredTensor{.type = WeightType::kI64, .shape = {0}}}}), "input_ids: is empty");
  EXPECT_SAYS(stored({{"input_ids", integers({1, 2})}, {"lengths", integers({1, 2})}}), "lengths: add up to 3");
  EXPECT_SAYS(stored({{"input_ids", integers({1, 2})}, {"lengths", integers({3, -1})}}), "lengths[1]: is -1");
  EXPECT_SAYS(stored({{"input_ids", integers({1, 2})}, {"attention_mask", integers({0, 1})}}), "attention_mask");
  EXPECT_SAYS(stored({{"inputs", integers({1, 2})}}), "input_ids: is missing");
  EXPECT_SAYS(stored({{"input_ids", integers({1})}, {"pixel_value", integers({1, 2})}}),
              "Did you mean 'pixel_values'?");
}

TEST_F(Predict, MediaThatDoNotFitAreRefused) {
  const auto said = [&](const std::function<void(StoredTensors&)>& change) {
    return refusal(kVision, tensors(kVision, "mixed", change));
  };
  EXPECT_SAYS(said([](StoredTensors& t) {
                t["pixel_values"] = floats({115, 27}, 0);
              }),
              "pixel_values: has 115 rows, but the grids of 4 images or videos have 116 patches");
  EXPECT_SAYS(said([](StoredTensors& t) {
                t["pixel_values"] = floats({116, 26}, 0);
              }),
              "pixel_values: has the shape 116 × 26");
  EXPECT_SAYS(said([](StoredTensors& t) { t["pixel_values"] = floats({116 * 27}, 0); }), "pixel_values: is Float");
  EXPECT_SAYS(said([](StoredTensors& t) { t.erase("pixel_values_videos"); }), "pixel_values_videos: is missing");
  EXPECT_SAYS(said([](StoredTensors& t) { t.erase("image_grid_thw"); }), "image_grid_thw: is missing");
  EXPECT_SAYS(said([](StoredTensors& t) { t["pixel_values"].set(3, std::numeric_limits<float>::quiet_NaN()); }),
              "pixel_values: holds a value that is not a finite number");
  EXPECT_SAYS(said([](StoredTensors& t) { t["image_grid_thw"].set<int64_t>(0, -1); }), "image_grid_thw");
  EXPECT_SAYS(said([](StoredTensors& t) { t["image_grid_thw"].set<int64_t>(1, int64_t{1} << 62); }), "image_grid_thw");
  EXPECT_SAYS(said([](StoredTensors& t) { t["image_grid_thw"].shape = {12}; }),
              "image_grid_thw: is Long of shape [12]");
  EXPECT_SAYS(said([](StoredTensors& t) { t["image_grid_thw"].shape = {3, 4}; }), "expected 3 columns");
  EXPECT_SAYS(said([](StoredTensors& t) { t["second_per_grid_ts"] = floats({1}, 1); }), "second_per_grid_ts: has 1");
  EXPECT_SAYS(said([](StoredTensors& t) {
                const int64_t image = json_of(kVision / "config.json")["image_token_id"].get<int64_t>();
                auto ids = t["input_ids"].values<int64_t>();
                t["input_ids"].set<int64_t>(static_cast<size_t>(std::find(ids.begin(), ids.end(), image) - ids.begin()),
                                            image == 0 ? 1 : 0);
              }),
              "image tokens, but the next");
}

TEST_F(Predict, MediaForAModelThatTakesNoneAreRefused) {
  const std::vector<std::pair<std::string, StoredTensor>> media = {
      {"pixel_values", floats({4, 12}, 0)},        {"image_grid_thw", integers({1, 2, 2}, {1, 3})},
      {"pixel_values_videos", floats({4, 12}, 0)}, {"second_per_grid_ts", floats({1}, 1)},
      {"input_features", floats({8, 4}, 0)},       {"audio_feature_lengths", integers({4})},
      {"use_audio_in_video", integers({1})}};
  for (const auto& [name, tensor] : media) {
    write_stored(folder_.path() / "t.safetensors", {{"input_ids", integers({1})}, {name, tensor}});
    EXPECT_SAYS(refusal(kLlama, (folder_.path() / "t.safetensors").string()),
                name + ": is given, but the model has no");
  }
}

TEST_F(Predict, AudioThatDoesNotFitIsRefused) {
  const auto said = [&](const std::function<void(StoredTensors&)>& change) {
    return refusal(kOmni, tensors(kOmni, "audio", change));
  };
  EXPECT_SAYS(said([](StoredTensors& t) { t["audio_feature_lengths"].set<int64_t>(0, 2); }), "mel frames, too few");
  EXPECT_SAYS(said([](StoredTensors& t) {
                t["input_features"] = floats({9, 53}, 0);
              }),
              "audio clip 2: has 18 frames, but only 17 are left of the 53");
  EXPECT_SAYS(said([](StoredTensors& t) { t["input_features"] = floats({8, 54}, 0); }), "this model takes [9 mel bins");
  EXPECT_SAYS(said([](StoredTensors& t) { t.erase("input_features"); }), "input_features: is missing");
  EXPECT_SAYS(said([](StoredTensors& t) {
                t.erase("audio_feature_lengths");
                t["input_features"] = floats({2, 9, 5}, 0);
                t["feature_attention_mask"] = integers({1, 1, 1, 0, 0, 1, 1, 0, 1, 0}, {2, 5});
              }),
              "feature_attention_mask");

  // A long clip is one whose tokens the language model has no positions for...
  const Json config = json_of(kOmni / "config.json");
  const int64_t start = config["audio_start_token_id"], audio = config["audio_token_index"],
                end = config["audio_end_token_id"];
  const auto clip_of = [&](int64_t tokens) {
    return [=](StoredTensors& t) {
      std::vector<int64_t> ids(static_cast<size_t>(tokens) + 2, audio);
      ids.front() = start;
      ids.back() = end;
      t = {{"input_ids", integers(ids)},
           {"input_features", floats({9, 4 * tokens}, 0.1F)},
           {"audio_feature_lengths", integers({4 * tokens})}};
    };
  };
  EXPECT_SAYS(said(clip_of(511)), "input_ids: has 513 tokens, which leaves no room");
  EXPECT_EQ(predicted(kOmni, tensors(kOmni, "audio", clip_of(509)), {"--ignore-end"})["prompts"][0]["tokens"].size(),
            1u);

  // ... and one whose chunks the encoder has no positions for.
  const ModelCopy model(kOmni);
  model.change_config(R"({"audio_config": {"max_source_positions": 4}})");
  EXPECT_SAYS(refusal(model.at(), tensors(kOmni, "audio", clip_of(20))), "max_source_positions is 4");
  model.change_config(R"({"audio_config": {"max_source_positions": 5}})");
  predicted(model.at(), tensors(kOmni, "audio", clip_of(20)));
}

TEST_F(Predict, WrongModelFoldersAreRefused) {
  const std::string file = prompt(std::vector<int64_t>{1, 2});
  EXPECT_SAYS(refusal("/nowhere", file), "/nowhere: does not exist");
  EXPECT_SAYS(refusal(kLlama / "config.json", file), "config.json: is not a folder");
  const ModelCopy model(kLlama);
  std::filesystem::remove(model.at() / "model.safetensors");
  EXPECT_SAYS(refusal(model.at(), file), "holds neither model.safetensors nor");
  std::filesystem::remove(model.at() / "config.json");
  EXPECT_SAYS(refusal(model.at(), file), "is a folder without a config.json");
  model.write("config.json",
              R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                                 "num_attention_heads": 2, "vocab_size": 9,
                                 "rope_scaling": {"rope_type": "dynamic", "factor": 2}})");
  EXPECT_SAYS(refusal(model.at(), file), "rope_scaling.rope_type: is dynamic, whose frequencies depend on");
}

TEST_F(Predict, WeightsOfAnotherModelAreRefused) {
  const std::string file = prompt(std::vector<int64_t>{1, 2});
  const ModelCopy model(kLlama);
  const auto said = [&](const std::function<void(StoredTensors&)>& change) {
    const ModelCopy damaged(kLlama);
    damaged.change_weights(change);
    return refusal(damaged.at(), file);
  };
  std::filesystem::copy_file(kFixtures / "qwen3/model.safetensors", model.at() / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_SAYS(refusal(model.at(), file), "Are these the weights of another model?");
  EXPECT_SAYS(said([](StoredTensors& w) { w["model.norm.weight"] = floats({35}, 1); }),
              "model.norm.weight: has the shape [35], but the model's configuration makes it [36]");
  EXPECT_SAYS(said([](StoredTensors& w) { w.erase("model.norm.weight"); }),
              "model.norm.weight: is a weight of the model, but the files do not have it");
  EXPECT_SAYS(said([](StoredTensors& w) { w["model.extra.weight"] = floats({2}, 1); }),
              "model.extra.weight: is in the files, but the model has no such weight");
  EXPECT_SAYS(said([](StoredTensors& w) {
                w["lm_head.weight"] = floats({95, 36}, 1);
              }),
              "lm_head.weight: is another weight than the embedding, but the configuration ties the two");
  {
    const ModelCopy copied(kLlama);
    copied.change_weights([](StoredTensors& w) { w["lm_head.weight"] = w.at("model.embed_tokens.weight"); });
    EXPECT_EQ(predicted(copied.at(), file, {})["prompts"].size(), 1u);
  }
  {
    // Files of Qwen2-VL have either name. Which one the fixture has does not matter.
    const ModelCopy twice(kVision);
    twice.change_weights([](StoredTensors& w) {
      const char* old_name = "model.norm.weight";
      const char* new_name = "model.language_model.norm.weight";
      if (w.contains(old_name)) {
        w[new_name] = w.at(old_name);
      } else {
        w[old_name] = w.at(new_name);
      }
    });
    EXPECT_SAYS(refusal(twice.at(), file), "is a second weight for model.norm.weight");
  }
  EXPECT_SAYS(said([](StoredTensors& w) { w["model.norm.weight"].set(7, std::numeric_limits<float>::quiet_NaN()); }),
              "model.norm.weight: holds a value that is not a finite number");
  EXPECT_SAYS(said([](StoredTensors& w) {
                w["model.norm.weight"] = {.type = WeightType::kI32, .shape = {36}, .bytes = std::string(144, 0)};
              }),
              "model.norm.weight: holds I32");
}

TEST_F(Predict, ATruncatedWeightFileIsRefused) {
  const ModelCopy model(kLlama);
  const path weights = model.at() / "model.safetensors";
  const auto size = std::filesystem::file_size(weights);
  for (const auto kept : {size - 1, size / 2, uintmax_t{100}, uintmax_t{7}, uintmax_t{0}}) {
    std::filesystem::resize_file(weights, kept);
    EXPECT_SAYS(refusal(model.at(), prompt(std::vector<int64_t>{1, 2})), "model.safetensors");
  }
}

TEST_F(Predict, AModelThatMemoryCannotHoldIsAFailedJob) {
  const ModelCopy model(kLlama);
  model.change_config(R"({"hidden_size": 60000, "intermediate_size": 240000, "num_hidden_layers": 200})");
  EXPECT_SAYS(refusal(model.at(), prompt(std::vector<int64_t>{1, 2}), {}, 1), "but this machine has");
}

TEST_F(Predict, OutputThatIsNoNumberIsAFailedJob) {
  const ModelCopy model(kLlama);
  model.change_weights([](StoredTensors& w) {
    StoredTensor& norm = w["model.norm.weight"];
    for (size_t i = 0; i < 36; ++i) norm.set(i, std::numeric_limits<float>::max());
  });
  EXPECT_SAYS(refusal(model.at(), prompt(std::vector<int64_t>{1, 2}), {}, 1),
              "the model's output for new token 0 is not a finite number");
}

class PredictByAPlan : public train_test::TrainingRuns {};

TEST_F(PredictByAPlan, ThreadsAndProcessesPrintWhatOneRankDoes) {
  const std::string four = plan("four", 4, "mbs: 1\nllm: {tp: 2, pp: 2, cp: 1, dp: 1}\nvision: {placement: inline}\n",
                                (kFixtures / "qwen2_vl_train").string());
  const std::string own = plan("own", 2, "mbs: 1\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nvision: {placement: colocated}\n",
                               (kFixtures / "qwen2_vl_train").string());
  const std::string prompt = (kFixtures / "qwen2_vl_train/step0.safetensors").string();
  const path model = kFixtures / "qwen2_vl_train";
  const Json one = predicted(model, prompt, {"--max-new-tokens", "5"});
  EXPECT_EQ(predicted(model, prompt, {"--max-new-tokens", "5", "--plan", four})["prompts"], one["prompts"]);
  EXPECT_EQ(predicted(model, prompt, {"--max-new-tokens", "5", "--plan", own})["prompts"], one["prompts"]);
  const ProgramRun run = run_weft_with_mpi(4, {"predict", "--model", model.string(), "--prompt-file", prompt,
                                               "--max-new-tokens", "5", "--plan", four, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["prompts"], one["prompts"]);  // one process prints
}

TEST_F(PredictByAPlan, APlanOfAnotherModelIsRefusedOnce) {
  const std::vector<std::string> arguments = {"predict",
                                              "--model",
                                              (kFixtures / "qwen2_vl_train").string(),
                                              "--prompt-file",
                                              (kFixtures / "qwen2_vl_train/step0.safetensors").string(),
                                              "--plan",
                                              two_ranks_plan()};
  for (const ProgramRun& run : {run_weft(arguments), run_weft_with_mpi(2, arguments)}) {
    EXPECT_EQ(run.exit_status, 2);
    const size_t first = run.err.find("is of another model than the plan's");
    EXPECT_NE(first, std::string::npos) << run.err;
    EXPECT_EQ(run.err.rfind("is of another model than the plan's"), first) << run.err;
  }
}

}  // namespace
}  // namespace weft
