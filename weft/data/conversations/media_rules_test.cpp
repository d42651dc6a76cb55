#include "weft/data/conversations/media_rules.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

const std::filesystem::path kParity = source_tree() / "tests/parity";

/// The folder of a model whose patches have a side of 14 pixels and 2 frames, and whose sound has 9 bands.
class ModelFolder : public testing::Test {
 protected:
  ModelFolder() {
    std::string unused = (std::filesystem::temp_directory_path() / "weft_media_rules_XXXXXX").string();
    folder_ = mkdtemp(unused.data());
    config_ = Json::parse(*read_file(kParity / "fixtures/qwen2_5_omni/config.json", 1 << 20));
    config_["vision_config"]["patch_size"] = 14;
    config_["vision_config"]["window_size"] = 112;
    write("config.json", config_);
    write("preprocessor_config.json", file_);
  }
  ~ModelFolder() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void write(const std::string& name, const Json& json) const { std::ofstream(folder_ / name) << json.dump(); }

  Result<MediaRules> read(const DataMediaLimits& limits = {}) const {
    return read_media_rules(*read_model_file(folder_), folder_, limits);
  }
  /// What is wrong where one value of the file is another; after the folder's name.
  std::string problem(const char* name, const Json& file) const {
    write(name, file);
    const Result<MediaRules> rules = read();
    std::filesystem::remove(folder_ / name);
    return rules.ok() ? "" : rules.error().message().substr(folder_.string().size() + 1);
  }
  Json file_with(const char* key, int64_t value) const {
    Json file = file_;
    file[key] = value;
    return file;
  }

  std::filesystem::path folder_;
  Json config_;
  Json file_ = {{"patch_size", 14}, {"merge_size", 2}, {"temporal_patch_size", 2}, {"feature_size", 9}};
};

TEST_F(ModelFolder, AnotherModelsPreprocessorIsNamedByWhatDiffers) {
  const char* name = "preprocessor_config.json";
  EXPECT_EQ(problem(name, file_), "");
  EXPECT_EQ(problem(name, file_with("patch_size", 28)),
            "preprocessor_config.json: patch_size: gives 28, the model needs 14. Take the files of the model that is "
            "used.");
  EXPECT_NE(problem(name, file_with("merge_size", 1)).find("json: merge_size: gives 1, the model needs 2"),
            std::string::npos);
  EXPECT_NE(problem(name, file_with("feature_size", 80)).find("json: feature_size: gives 80, the model needs 9"),
            std::string::npos);
  EXPECT_NE(problem(name, file_with("temporal_patch_size", 4)).find("json: temporal_patch_size: gives 4"),
            std::string::npos);
  // As many values a patch as the model's: 3 * 8 * 7 * 7 = 3 * 2 * 14 * 14.
  Json alias = file_with("patch_size", 7);
  alias["temporal_patch_size"] = 8;
  EXPECT_NE(problem(name, alias).find("json: patch_size: gives 7, the model needs 14"), std::string::npos);
}

TEST_F(ModelFolder, TheFileOfVideosIsJudgedByItself) {
  EXPECT_NE(problem("video_preprocessor_config.json", file_with("patch_size", 16))
                .find("video_preprocessor_config.json: patch_size: gives 16, the model needs 14"),
            std::string::npos);
  std::filesystem::remove(folder_ / "preprocessor_config.json");
  const Json both = {
      {"image_processor", file_}, {"video_processor", file_with("patch_size", 16)}, {"feature_extractor", file_}};
  EXPECT_NE(problem("processor_config.json", both)
                .find("processor_config.json: video_processor.patch_size: gives 16, the model needs 14"),
            std::string::npos);
}

TEST_F(ModelFolder, WithoutAFileTheModelsOwnNumbersHold) {
  std::filesystem::remove(folder_ / "preprocessor_config.json");
  const Result<MediaRules> rules = read();
  ASSERT_TRUE(rules.ok()) << rules.error().message();
  EXPECT_EQ(rules->image->patch, 14);
  EXPECT_EQ(rules->video->patch, 14);
  EXPECT_EQ(rules->audio->num_mels, 9);
}

TEST_F(ModelFolder, PatchesOfOtherThanThreeColoursAreRefused) {
  Json config = config_;
  config["vision_config"]["in_channels"] = 4;
  write("config.json", config);
  const Result<MediaRules> rules = read();
  ASSERT_FALSE(rules.ok());
  EXPECT_EQ(rules.error().source, (folder_ / "config.json").string());
  EXPECT_EQ(rules.error().problem, "has patches of 4 channels, and pictures of files have 3: red, green and blue");
}

TEST_F(ModelFolder, VideosHaveAtMostTheFramesThatAreAllowedInWholePatches) {
  MediaReference video{.kind = MediaKind::kVideo};
  for (int i = 0; i < 50; ++i) video.files.push_back(kParity / "media/plain.png");
  for (const int64_t most : {2, 7, 30, 41, 43, 49, 50, 60}) {
    const Result<MediaRules> rules = read({.video_max_frames = most});
    ASSERT_TRUE(rules.ok());
    const Result<MediaShape> shape = measure_media(*rules, video);
    ASSERT_TRUE(shape.ok()) << shape.error().message();
    const int64_t expected = most >= 50 ? 50 : most - most % 2;
    EXPECT_EQ(std::ssize(shape->frames), expected) << most;
    EXPECT_EQ(shape->grid.t, expected / 2);
    EXPECT_LT(shape->frames.back(), 50);
  }
  EXPECT_EQ(measure_media(*read({.video_max_frames = 1}), video).error().problem,
            "is a video of 50 frames; video_max_frames is 1, but a patch has 2 of them");
}

}  // namespace
}  // namespace weft
