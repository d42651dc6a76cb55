#include "weft/loader/conversation_source.h"

#include <algorithm>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/loader/conversation_files.h"
#include "tests/support/prepare/drawn_media.h"

namespace weft {
namespace {

class ConversationSamples : public testing::Test {
 protected:
  std::shared_ptr<ConversationData> open(const SampleForm& form, double held_out_share = 0) const {
    DataSettings settings{.source = "code",
                          .files = {{.file = files_.folder() / "chats.jsonl", .folder = files_.folder()}}};
    settings.held_out_share = held_out_share;
    auto data = ConversationData::open(files_.model(), form, files_.folder() / "model", settings);
    WEFT_CHECK(data.ok(), "{}", data.error().message());
    return *std::move(data);
  }
  static std::string record(const std::string& question, const std::string& media) {
    return R"({"messages": [{"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": "Yes."}], )" + media + "}\n";
  }
  static bool is_same(const Sample& a, const Sample& b) {
    return a.ids == b.ids && a.targets == b.targets && a.images == b.images && a.pixels == b.pixels &&
           a.videos == b.videos && a.video_pixels == b.video_pixels && a.clip_frames == b.clip_frames &&
           a.features == b.features;
  }

  ConversationFiles files_;
  SampleForm form_{.vocabulary = 440, .max_tokens = 512, .merge_size = 2, .patch_elements = 54, .mel_bins = 9};
};

TEST_F(ConversationSamples, PatchesAreThoseOfTransformers) {
  const std::filesystem::path media = source_tree() / "tests/parity/media";
  files_.write("model/preprocessor_config.json", R"({"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2,
               "min_pixels": 3136, "max_pixels": 1003520, "feature_size": 9})");
  std::filesystem::remove(files_.folder() / "model/video_preprocessor_config.json");
  Json config = Json::parse(*read_file(files_.folder() / "model/config.json", 1 << 20));
  config["vision_config"]["patch_size"] = 14;
  config["vision_config"]["window_size"] = 112;
  files_.write("model/config.json", config.dump());
  form_.patch_elements = 1176;
  const Json expected = Json::parse(*read_file(media / "expected.json", 1 << 22))["pictures"];
  for (const char* name : {"plain.jpg", "alpha.png", "lossy.webp", "turned_6.jpg", "grey.png"}) {
    files_.write("chats.jsonl", record("<image>?", fmt::format(R"("images": ["media/{}"])", name)));
    const ConversationSource source(open(form_), 1, false);
    std::vector<SkippedSample> skipped;
    const auto sample = source.read(0, {}, skipped);
    ASSERT_TRUE(sample.ok() && skipped.empty()) << name;
    EXPECT_EQ(checksum(sample->pixels), expected[name]["patches"].get<uint32_t>()) << name;
    EXPECT_EQ(sample->images.front().rows, expected[name]["grid"][1].get<int64_t>());
    EXPECT_EQ(sample->images.front().columns, expected[name]["grid"][2].get<int64_t>());
  }
}

TEST_F(ConversationSamples, LengthsAreThoseOfTheSample) {
  files_.write_records(32);
  const auto count = [](const Sample& sample, int64_t id) {
    return std::count(sample.ids.begin(), sample.ids.end(), id);
  };
  const ConversationSource source(open(form_), 1, false);
  SampleRows all;
  for (int64_t i = 0; i < source.num_different(); ++i) {
    std::vector<SkippedSample> skipped;
    const auto lengths = source.lengths_of(i, skipped);
    const auto sample = source.read(i, {}, skipped);
    const auto bare = source.read(i, {.pixels = false, .features = false}, skipped);
    ASSERT_TRUE(lengths.ok() && sample.ok() && bare.ok() && skipped.empty())
        << i << ": " << (skipped.empty() ? "" : skipped.front().problem);
    EXPECT_EQ(lengths->load.llm, sample->load.llm);
    EXPECT_EQ(lengths->load.llm.front().length, static_cast<double>(sample->ids.size()));
    EXPECT_EQ(lengths->rows.image, count(*sample, files_.id_of("<|image_pad|>")));
    EXPECT_EQ(lengths->rows.video, count(*sample, files_.id_of("<|video_pad|>")));
    EXPECT_EQ(lengths->rows.audio, count(*sample, files_.id_of("<|AUDIO|>")));
    double patches = 0;
    for (const Segment& segment : lengths->load.vision) patches += segment.length * segment.count;
    EXPECT_EQ(patches * 54, static_cast<double>(sample->pixels.size() + sample->video_pixels.size()));
    EXPECT_EQ(bare->ids, sample->ids);
    EXPECT_TRUE(bare->pixels.empty() && bare->video_pixels.empty() && bare->features.empty());
    all.image += lengths->rows.image;
    all.video += lengths->rows.video;
    all.audio += lengths->rows.audio;
  }
  EXPECT_GT(all.image, 0);
  EXPECT_GT(all.video, 0);
  EXPECT_GT(all.audio, 0);
}

TEST_F(ConversationSamples, ClipsLieSideBySideInEveryBand) {
  const auto features = [&](const std::string& question, const std::string& clips) {
    files_.write("chats.jsonl", record(question, fmt::format(R"("audios": [{}])", clips)));
    std::vector<SkippedSample> skipped;
    return *ConversationSource(open(form_), 1, false).read(0, {}, skipped);
  };
  const Sample one = features("<audio>", R"("media/plain.wav")"), two = features("<audio>", R"("media/stereo.flac")"),
               both = features("<audio><audio>", R"("media/plain.wav", "media/stereo.flac")");
  const size_t first = one.features.size() / 9, second = two.features.size() / 9;
  ASSERT_EQ(both.features.size(), 9 * (first + second));
  ASSERT_GT(first, 0u);
  for (size_t band = 0; band < 9; ++band) {
    const auto row = both.features.begin() + static_cast<std::ptrdiff_t>(band * (first + second));
    EXPECT_TRUE(std::equal(row, row + static_cast<std::ptrdiff_t>(first),
                           one.features.begin() + static_cast<std::ptrdiff_t>(band * first)));
    EXPECT_TRUE(std::equal(row + static_cast<std::ptrdiff_t>(first), row + static_cast<std::ptrdiff_t>(first + second),
                           two.features.begin() + static_cast<std::ptrdiff_t>(band * second)));
  }
}

TEST_F(ConversationSamples, WhatStandsInForABrokenRecordDoesNotDependOnWhenItWasFound) {
  files_.write_records(40, 3);
  const auto data = open(form_);
  ConversationSource knows(data, 5, false);
  int64_t num_found = 0;
  const auto read = [&](ConversationSource& source, int64_t index) {
    for (;;) {
      std::vector<SkippedSample> skipped;
      Sample sample = *source.read(index, {}, skipped);
      if (skipped.empty() || !skipped.back().is_new) return sample;
      ++num_found;
      source.leave_out({skipped.back()});
    }
  };
  // Two epochs: in the second all that is broken is known.
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 80; ++i) samples.push_back(read(knows, i));
  const int64_t num_known = std::exchange(num_found, 0);
  EXPECT_GT(num_known, 0);
  for (int64_t i = 79; i >= 0; --i) {
    ConversationSource fresh(data, 5, false);
    EXPECT_TRUE(is_same(read(fresh, i), samples[static_cast<size_t>(i)])) << i;
    EXPECT_TRUE(is_same(read(knows, i), samples[static_cast<size_t>(i)])) << i;
  }
}

TEST_F(ConversationSamples, ThreadsReadTheSame) {
  files_.write_records(40);
  const ConversationSource source(open(form_), 5, false);
  std::vector<Sample> alone, together(40);
  std::vector<SkippedSample> none;
  for (int64_t i = 0; i < 40; ++i) alone.push_back(*source.read(i, {}, none));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      std::vector<SkippedSample> skipped;
      for (size_t i = t; i < 40; i += 8) together[i] = *source.read(static_cast<int64_t>(i), {}, skipped);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < 40; ++i) EXPECT_TRUE(is_same(alone[i], together[i])) << i;
}

TEST_F(ConversationSamples, HeldOutSamplesAreNotTrainedOn) {
  files_.write_records(40);
  const auto data = open(form_, 0.25);
  const ConversationSource trained(data, 5, false), unseen(data, 5, true);
  EXPECT_EQ(trained.num_different(), 30);
  ASSERT_EQ(unseen.num_different(), 10);
  std::vector<SkippedSample> none;
  for (int64_t k = 0; k < 10; ++k) {
    const Sample held = *unseen.read(k, {}, none);
    for (int64_t i = 0; i < 60; ++i) EXPECT_FALSE(is_same(held, *trained.read(i, {}, none))) << k << " " << i;
  }
}

TEST_F(ConversationSamples, FilesOfAnotherModelAreNamed) {
  files_.write_records(8);
  files_.write("model/preprocessor_config.json", R"({"patch_size": 3, "merge_size": 2, "temporal_patch_size": 2,
               "feature_size": 80})");
  const DataSettings settings{.source = "code",
                              .files = {{.file = files_.folder() / "chats.jsonl", .folder = files_.folder()}}};
  const auto data = ConversationData::open(files_.model(), form_, files_.folder() / "model", settings);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().field, "feature_size");
}

TEST_F(ConversationSamples, VideosOfMoreFramesThanAllowedAreThatLong) {
  std::string frames;
  for (int i = 0; i < 42; ++i) frames += std::string(i > 0 ? ", " : "") + "\"media/alpha.png\"";
  files_.write("chats.jsonl", record("<video>?", R"("videos": [[)" + frames + "]]"));
  DataSettings settings{.source = "code",
                        .files = {{.file = files_.folder() / "chats.jsonl", .folder = files_.folder()}}};
  settings.limits.video_max_frames = 30;
  const auto data = ConversationData::open(files_.model(), form_, files_.folder() / "model", settings);
  ASSERT_TRUE(data.ok());
  const ConversationSource source(*data, 1, false);
  std::vector<SkippedSample> skipped;
  const auto sample = source.read(0, {}, skipped);
  ASSERT_TRUE(sample.ok() && skipped.empty()) << (skipped.empty() ? "" : skipped.front().problem);
  const VideoGrid& video = sample->videos.front();
  EXPECT_EQ(video.frames, 15);
  EXPECT_EQ(std::ssize(sample->video_pixels), 15 * video.frame.num_patches() * form_.patch_elements);
}

}  // namespace
}  // namespace weft
