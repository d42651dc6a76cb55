// Whole conversations against transformers' processors of models whose videos have frames apart, or that take tiles.
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/loader/conversation_source.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

const std::filesystem::path kParity = source_tree() / "tests/parity";

Json json_of(const std::filesystem::path& path) {
  return Json::parse(*read_file(path, 1 << 22));
}

/// A model's folder with a tokenizer and a template, and a file of conversations.
class ProcessorConversations : public testing::Test {
 protected:
  ProcessorConversations() {
    std::string unused = (std::filesystem::temp_directory_path() / "weft_processors_XXXXXX").string();
    folder_ = mkdtemp(unused.data());
    std::filesystem::create_directories(folder_ / "model");
    std::filesystem::copy(kParity / "media", folder_ / "media");
  }
  ~ProcessorConversations() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }

  void write_model(const Json& config, const std::vector<std::string>& tokens, const std::string& chat) const {
    write("model/config.json", config.dump());
    Json tokenizer = json_of(kParity / "text/qwen2_form/tokenizer.json");
    for (size_t i = 0; i < tokens.size(); ++i) {
      Json added = tokenizer["added_tokens"][0];
      added["id"] = 428 + i;
      added["content"] = tokens[i];
      tokenizer["added_tokens"].push_back(added);
    }
    write("model/tokenizer.json", tokenizer.dump());
    std::filesystem::copy_file(kParity / "text/templates" / chat, folder_ / "model/chat_template.jinja");
  }

  /// The conversation as this data set gives it.
  Sample read(const Json& entry, const SampleForm& form, LossOn loss = LossOn::kAssistant) const {
    Json record = {
        {"messages",
         {{{"role", "user"}, {"content", entry["question"]}}, {{"role", "assistant"}, {"content", "Yes, frame 2."}}}}};
    if (entry.contains("system"))
      record["messages"].insert(record["messages"].begin(), Json{{"role", "system"}, {"content", entry["system"]}});
    for (const auto& name : entry.value("audios", Json::array()))
      record["audios"].push_back("media/" + name.get<std::string>());
    for (const auto& name : entry["images"]) record["images"].push_back("media/" + name.get<std::string>());
    for (const auto& frames : entry["videos"]) {
      Json video;
      for (const auto& name : frames) video.push_back("media/" + name.get<std::string>());
      record["videos"].push_back(video);
    }
    write("chats.jsonl", record.dump() + "\n");
    DataSettings settings{.source = "code", .files = {{.file = folder_ / "chats.jsonl", .folder = folder_}}};
    settings.limits.video_fps = entry["fps"];
    settings.encode.loss = loss;
    const auto data = ConversationData::open(*read_model_file(folder_ / "model"), form, folder_ / "model", settings);
    WEFT_CHECK(data.ok(), "{}", data.error().message());
    const ConversationSource source(*data, 1, false);
    std::vector<SkippedSample> skipped;
    auto sample = source.read(0, {}, skipped);
    WEFT_CHECK(sample.ok() && skipped.empty(), "{}",
               skipped.empty() ? sample.error().message() : skipped.front().problem);
    const auto lengths = source.lengths_of(0, skipped);
    EXPECT_EQ(lengths->load.vision, sample->load.vision);
    return *std::move(sample);
  }

  /// Tokens by number, pictures and videos by checksum.
  void expect_as_recorded(const Json& entries, const SampleForm& form) const {
    for (const Json& entry : entries) {
      SCOPED_TRACE(entry["question"].get<std::string>());
      const Sample sample = read(entry, form);
      EXPECT_EQ(sample.ids, entry["ids"].get<std::vector<int64_t>>());
      if (entry.contains("image_patches")) {
        EXPECT_EQ(checksum(sample.pixels), entry["image_patches"].get<uint32_t>());
        ASSERT_EQ(sample.images.size(), entry["image_grids"].size());
        for (size_t i = 0; i < sample.images.size(); ++i) {
          const Json& grid = entry["image_grids"][i];
          EXPECT_EQ(sample.images[i], (ImageGrid{grid[1].get<int64_t>(), grid[2].get<int64_t>()}));
        }
      }
      if (!entry.contains("video_patches")) continue;
      EXPECT_EQ(checksum(sample.video_pixels), entry["video_patches"].get<uint32_t>());
      ASSERT_EQ(sample.videos.size(), entry["video_grids"].size());
      for (size_t i = 0; i < sample.videos.size(); ++i) {
        const Json& grid = entry["video_grids"][i];
        EXPECT_EQ(sample.videos[i].frames, grid[0].get<int64_t>());
        EXPECT_EQ(sample.videos[i].frame, (ImageGrid{grid[1].get<int64_t>(), grid[2].get<int64_t>()}));
      }
    }
  }

  std::filesystem::path folder_;
};

class ApartVideos : public ProcessorConversations {
 protected:
  ApartVideos() {
    Json config = json_of(kParity / "fixtures/qwen3_vl_tied/config.json");
    config["text_config"]["vocab_size"] = 440;
    config["vision_config"]["patch_size"] = 3;
    config["vision_config"]["temporal_patch_size"] = 2;
    for (const auto& [key, id] : {std::pair("vision_start_token_id", 430), std::pair("vision_end_token_id", 431),
                                  std::pair("image_token_id", 432), std::pair("video_token_id", 433)})
      config[key] = id;
    write_model(config,
                {"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"},
                "vision_parts.jinja");
    write("model/preprocessor_config.json",
          R"({"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 3, "merge_size": 2,
              "temporal_patch_size": 2, "size": {"shortest_edge": 72, "longest_edge": 720},
              "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})");
    write("model/video_preprocessor_config.json",
          R"({"video_processor_type": "Qwen3VLVideoProcessor", "patch_size": 3, "merge_size": 2,
              "temporal_patch_size": 2, "size": {"shortest_edge": 72, "longest_edge": 1440}})");
  }

  SampleForm form_{.vocabulary = 440, .max_tokens = 4096, .merge_size = 2, .patch_elements = 54};
};

TEST_F(ApartVideos, AreTransformersTokenForTokenAndValueForValue) {
  expect_as_recorded(json_of(kParity / "media/processors.json")["apart_conversations"], form_);
}

/// Families whose videos are one block of tokens.
class BlockVideos : public ProcessorConversations,
                    public testing::WithParamInterface<std::pair<const char*, const char*>> {};

TEST_P(BlockVideos, AreTransformersTokenForTokenAndValueForValue) {
  const auto& [family, fixture] = GetParam();
  Json config = json_of(kParity / "fixtures" / fixture / "config.json");
  config["text_config"]["vocab_size"] = 440;
  config["vision_config"]["patch_size"] = 3;
  config["vision_config"]["temporal_patch_size"] = 2;
  const bool hears = config.contains("audio_config");
  const std::string last = hears ? "index" : "id";
  for (const auto& [key, id] : {std::pair("vision_start_token_id", 430), std::pair("vision_end_token_id", 431)})
    config[key] = id;
  config["image_token_" + last] = 432;
  config["video_token_" + last] = 433;
  if (hears) {
    config["audio_start_token_id"] = 434;
    config["audio_end_token_id"] = 435;
    config["audio_token_index"] = 436;
  }
  write_model(config,
              {"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
               "<|audio_bos|>", "<|audio_eos|>", "<|AUDIO|>"},
              "vision_parts.jinja");
  write("model/preprocessor_config.json", R"({"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2,
         "min_pixels": 72, "max_pixels": 720, "feature_size": 9, "chunk_length": 1})");
  write("model/video_preprocessor_config.json", R"({"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2,
         "min_pixels": 72, "max_pixels": 144})");
  const Json entries = json_of(kParity / "media/processors.json")["family_conversations"][family];
  ASSERT_GE(entries.size(), 3u);
  expect_as_recorded(
      entries,
      {.vocabulary = 440, .max_tokens = 4096, .merge_size = 2, .patch_elements = 54, .mel_bins = hears ? 9 : 0});
}

INSTANTIATE_TEST_SUITE_P(Families, BlockVideos,
                         testing::Values(std::pair("qwen2_vl", "qwen2_vl_tied"), std::pair("qwen2_5_vl", "qwen2_5_vl"),
                                         std::pair("qwen2_5_omni", "qwen2_5_omni")),
                         [](const auto& tested) { return std::string(tested.param.first); });

TEST_F(ApartVideos, WhatIsWrittenForFramesIsNotLearnt) {
  const Json entry = json_of(kParity / "media/processors.json")["apart_conversations"][0];
  const Sample answer = read(entry, form_), everything = read(entry, form_, LossOn::kEverything);
  const auto learnt = [](const Sample& sample, size_t begin, size_t end) {
    int64_t count = 0;
    for (size_t i = begin; i + 1 < end; ++i) count += sample.targets[i] != kNoTarget ? 1 : 0;
    return count;
  };
  // The answer begins behind the last <|im_start|>.
  size_t turn = answer.ids.size() - 1;
  while (answer.ids[turn] != 428) --turn;
  EXPECT_EQ(learnt(answer, 0, turn), 0);
  EXPECT_GT(learnt(answer, turn, answer.ids.size()), 0);
  const auto first = std::find(everything.ids.begin(), everything.ids.end(), 430) - everything.ids.begin();
  const auto last = std::find(everything.ids.rbegin(), everything.ids.rend(), 431) - everything.ids.rbegin();
  const auto end = std::ssize(everything.ids) - last;
  EXPECT_EQ(learnt(everything, static_cast<size_t>(first), static_cast<size_t>(end - 1)), 0);
  EXPECT_GT(learnt(everything, 0, static_cast<size_t>(first)), 5);
}

TEST_F(ApartVideos, AVideoOfOneFrameIsNamed) {
  Json entry = json_of(kParity / "media/processors.json")["apart_conversations"][0];
  entry["videos"] = {{"plain.jpg"}};
  EXPECT_THROW(
      {
        try {
          read(entry, form_);
        } catch (const std::exception& problem) {
          EXPECT_NE(std::string(problem.what()).find("is a video of 1 frames"), std::string::npos) << problem.what();
          throw;
        }
      },
      std::exception);
}

class Tiles : public ProcessorConversations {
 protected:
  Tiles() {
    Json config = json_of(kParity / "fixtures/internvl/config.json");
    config["text_config"]["vocab_size"] = 440;
    config["vision_config"]["image_size"] = {24, 24};
    config["vision_config"]["patch_size"] = {4, 4};
    config["downsample_ratio"] = 0.5;
    config["image_seq_length"] = 9;
    config["image_token_id"] = 432;
    write_model(config, {"<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>"},
                "tile_parts.jinja");
    write("model/preprocessor_config.json",
          R"({"image_processor_type": "GotOcr2ImageProcessorFast", "size": {"height": 24, "width": 24},
              "max_patches": 6, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]})");
  }

  SampleForm form_{.vocabulary = 440, .max_tokens = 4096, .merge_size = 2, .tile_side = 6, .patch_elements = 48};
};

TEST_F(Tiles, AreTransformersTokenForTokenAndValueForValue) {
  const Json recorded = json_of(kParity / "media/processors.json");
  for (const Json& entry : recorded["tile_conversations"]) {
    SCOPED_TRACE(entry["question"].get<std::string>());
    const Sample sample = read(entry, form_);
    EXPECT_EQ(sample.ids, entry["ids"].get<std::vector<int64_t>>());
    EXPECT_EQ(std::ssize(sample.images), entry["tiles"].get<int64_t>());
    EXPECT_EQ(checksum(sample.pixels), entry["patches"].get<uint32_t>());
    EXPECT_TRUE(sample.videos.empty());
    double rows = 0;
    for (const Segment& segment : sample.load.vision) rows += segment.length * segment.count;
    EXPECT_EQ(rows, 37.0 * static_cast<double>(sample.images.size()));
  }
}

TEST_F(Tiles, OfAnotherSizeThanTheModelsAreNamed) {
  write("model/preprocessor_config.json", R"({"size": {"height": 448, "width": 448}})");
  const auto rules = read_media_rules(*read_model_file(folder_ / "model"), folder_ / "model", {});
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().field, "size.height");
}

}  // namespace
}  // namespace weft
