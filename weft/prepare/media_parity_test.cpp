// Against what transformers, Pillow and soundfile make of the files in tests/parity/media.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/support/prepare/drawn_media.h"
#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/prepare/decode_image.h"
#include "weft/prepare/log_mel.h"
#include "weft/prepare/patches.h"
#include "weft/prepare/waveform.h"
#include "weft/probe/video_frames.h"

namespace weft::media_parity {
namespace {

std::filesystem::path folder() {
  return source_tree() / "tests/parity/media";
}

const Json& expected() {
  static const Json document = [] {
    Result<Document> read = read_document(folder() / "expected.json");
    EXPECT_TRUE(read.ok());
    return read->root;
  }();
  return document;
}

template <typename T>
std::vector<T> kept_values(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

PatchGrid grid_of(const Json& list) {
  return {list[0].get<int64_t>(), list[1].get<int64_t>(), list[2].get<int64_t>()};
}

std::vector<float> patches_of(const std::vector<Pixels>& frames, const PatchRules& rules) {
  std::vector<const Pixels*> pointers;
  for (const Pixels& frame : frames) pointers.push_back(&frame);
  const Result<PixelSize> size = resized_size(rules, {frames[0].height, frames[0].width}, "a picture");
  EXPECT_TRUE(size.ok());
  const PatchGrid grid = patch_grid(rules, *size, std::ssize(frames));
  std::vector<float> values(static_cast<size_t>(grid.num_patches() * rules.values_per_patch()));
  prepare_patches(pointers, rules, *size, {0, grid.num_patches()}, values);
  return values;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(MediaParity, PicturesAreDecodedAsPillowDoesPixelForPixel) {
  int num_pictures = 0;
  for (const auto& [name, entry] : expected()["pictures"].items()) {
    SCOPED_TRACE(name);
    const Result<Pixels> picture = read_image(folder() / name);
    ASSERT_TRUE(picture.ok()) << picture.error().message();
    const Result<ImageInfo> image = probe_image(folder() / name);
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(picture->width, entry["width"].get<int64_t>());
    EXPECT_EQ(picture->height, entry["height"].get<int64_t>());
    EXPECT_EQ(image->width(), picture->width);
    EXPECT_EQ(image->height(), picture->height);
    const auto kept = kept_values<uint8_t>(folder() / (name + ".rgb"));
    ASSERT_EQ(kept.size(), picture->rgb.size());
    const auto [ours, theirs] = std::mismatch(picture->rgb.begin(), picture->rgb.end(), kept.begin());
    EXPECT_TRUE(ours == picture->rgb.end())
        << "byte " << ours - picture->rgb.begin() << " is " << int{*ours} << ", Pillow's " << int{*theirs};
    EXPECT_EQ(checksum(picture->rgb), entry["pixels"].get<uint32_t>());
    ++num_pictures;
  }
  EXPECT_GE(num_pictures, 40);
}

TEST(MediaParity, PatchesOfFilesAreTransformersValueForValue) {
  for (const auto& [name, entry] : expected()["pictures"].items()) {
    const Result<Pixels> picture = read_image(folder() / name);
    ASSERT_TRUE(picture.ok()) << picture.error().message();
    EXPECT_EQ(checksum(patches_of({*picture}, {})), entry["patches"].get<uint32_t>()) << name;
  }
}

TEST(MediaParity, PatchesOfAwkwardSizesAreTransformersValueForValue) {
  for (const Json& entry : expected()["drawn"]) {
    const int64_t height = entry["height"], width = entry["width"];
    const PatchRules rules;
    const Result<PixelSize> size = resized_size(rules, {height, width}, "a picture");
    ASSERT_TRUE(size.ok());
    EXPECT_EQ(patch_grid(rules, *size, 1), grid_of(entry["grid"])) << height << " by " << width;
    const std::vector<float> values = patches_of({drawn_picture(height, width)}, rules);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(values[i], entry["first"][i].get<float>());
    EXPECT_EQ(checksum(values), entry["patches"].get<uint32_t>()) << height << " by " << width;
  }
}

TEST(MediaParity, PatchesOfVideosAreTransformersValueForValue) {
  for (const Json& entry : expected()["videos"]) {
    std::vector<Pixels> frames;
    for (uint64_t i = 0; i < entry["frames"].get<uint64_t>(); ++i) {
      frames.push_back(drawn_picture(entry["height"], entry["width"], i));
    }
    EXPECT_EQ(checksum(patches_of(frames, video_rules())), entry["patches"].get<uint32_t>()) << frames.size();
  }
}

TEST(MediaParity, SizesAreThoseOfSmartResize) {
  for (const Json& entry : expected()["sizes"]) {
    PatchRules rules;
    rules.min_pixels = entry[2];
    rules.max_pixels = entry[3];
    const Result<PixelSize> size = resized_size(rules, {entry[0].get<int64_t>(), entry[1].get<int64_t>()}, "a picture");
    ASSERT_EQ(size.ok(), !entry[4].is_null()) << entry.dump();
    if (size.ok()) {
      EXPECT_EQ(*size, (PixelSize{entry[4][0].get<int64_t>(), entry[4][1].get<int64_t>()})) << entry.dump();
    }
  }
}

TEST(MediaParity, FramesOfVideosAreThoseThatTransformersTakes) {
  int num_beyond = 0;
  for (const Json& entry : expected()["frames"]) {
    FrameSampling sampling;
    if (!entry[2].is_null()) sampling.num_frames = entry[2].get<int64_t>();
    if (!entry[3].is_null()) sampling.frames_per_second = entry[3].get<double>();
    const auto numbers = sampled_frames(sampling, entry[0], entry[1].get<double>(), "a video");
    ASSERT_EQ(numbers.ok(), !entry[4].is_null()) << entry.dump();
    if (!numbers.ok()) continue;
    auto taken = entry[4].get<std::vector<int64_t>>();
    // By rounding, torch.arange can give one number more. No frame has it: transformers then fails on the video itself.
    if (taken.back() == entry[0].get<int64_t>()) {
      taken.pop_back();
      ++num_beyond;
    }
    EXPECT_EQ(*numbers, taken) << entry.dump();
  }
  EXPECT_EQ(num_beyond, 2);
}

TEST(MediaParity, SoundsAreDecodedAsSoundfileDoes) {
  for (const auto& [name, entry] : expected()["sounds"].items()) {
    SCOPED_TRACE(name);
    const Result<AudioInfo> clip = probe_audio(folder() / name);
    ASSERT_TRUE(clip.ok()) << clip.error().message();
    EXPECT_EQ(clip->rate_hz, entry["rate"].get<int64_t>());
    EXPECT_EQ(clip->channels, entry["channels"].get<int64_t>());
    EXPECT_EQ(clip->frames, entry["frames"].get<int64_t>());
    const Result<Waveform> sound = read_audio(folder() / name);
    ASSERT_TRUE(sound.ok()) << sound.error().message();
    if (entry.contains("samples")) {
      EXPECT_EQ(checksum(sound->samples), entry["samples"].get<uint32_t>());
    }
    const Waveform at_16k = resampled(*sound, 16'000);
    EXPECT_EQ(std::ssize(at_16k.samples), entry["frames_16k"].get<int64_t>());
    // Lossy decoders differ between versions in the last digits, resamplers a little more.
    EXPECT_LE(largest_difference(at_16k.samples, kept_values<float>(folder() / (name + ".f32"))), 1e-3F);
  }
}

TEST(MediaParity, FeaturesAreThoseOfWhisperToOneInTenThousand) {
  for (const Json& entry : expected()["features"]) {
    const MelRules rules{.num_mels = entry["mels"], .chunk_seconds = entry["chunk_seconds"]};
    const std::vector<float> sound = drawn_sound(entry["samples"], entry["kind"].get<std::string>());
    EXPECT_EQ(rules.num_frames(std::ssize(sound)), entry["frames"].get<int64_t>());
    const std::vector<float> values = LogMel(rules).features(sound);
    const std::string file = entry["file"].get<std::string>() + ".f32";
    EXPECT_LE(largest_difference(values, kept_values<float>(folder() / file)), 1e-4F) << file;
  }
}

}  // namespace
}  // namespace weft::media_parity
