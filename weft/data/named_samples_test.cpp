#include "weft/data/named_samples.h"

#include <set>
#include <unistd.h>

#include "tests/support/weights/example_files.h"
#include "weft/weights/safetensors_writer.h"

namespace weft {
namespace {

/// Entries [3] below 5, and numbers [2].
ProgramNumbers example_numbers() {
  ProgramNumbers numbers;
  numbers.rows.rows_per_sample = 3;
  numbers.inputs = {{.name = "ids", .shape = {3}, .dims = {"s"}, .num_entries = 5},
                    {.name = "x", .shape = {2}, .dims = {"h"}, .num_entries = {}}};
  return numbers;
}

template <typename T>
void write_tensor(const std::filesystem::path& file, const std::string& name, WeightType type,
                  const std::vector<int64_t>& shape, const std::vector<T>& values) {
  const WeightEntry entry{
      .info = {.name = name, .type = type, .shape = shape}, .bytes = std::as_bytes(std::span(values)), .owner = {}};
  ASSERT_FALSE(write_safetensors(file, std::span(&entry, 1), {}));
}

class NamedSamplesTest : public testing::Test {
 protected:
  /// Sample i has entries i % 5 and numbers i.
  void write(int64_t count, int64_t first, const std::string& ids, const std::string& x) {
    std::vector<int64_t> entries;
    std::vector<float> numbers;
    for (int64_t i = first; i < first + count; ++i) {
      for (int k = 0; k < 3; ++k) entries.push_back(i % 5);
      for (int k = 0; k < 2; ++k) numbers.push_back(static_cast<float>(i));
    }
    write_tensor(folder_ / ids, "ids", WeightType::kI64, {count, 3}, entries);
    write_tensor(folder_ / x, "x", WeightType::kF32, {count, 2}, numbers);
  }
  std::string refusal(const std::vector<NamedFile>& files) {
    const auto samples = NamedSamples::open(example_numbers(), {.files = files, .source = "train.yaml"}, 1);
    return samples ? "" : samples.error().message();
  }

  ScratchFolder folder_;
  std::vector<SkippedSample> skipped_;
};

TEST_F(NamedSamplesTest, AFolderThatCannotBeReadSaysSo) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads every folder";
  std::filesystem::create_directory(folder_ / "ids");
  std::filesystem::permissions(folder_ / "ids", std::filesystem::perms::none);
  EXPECT_NE(refusal({{"ids", folder_ / "ids", "ids"}}).find("a folder that cannot be read: Permission denied"),
            std::string::npos);
  std::filesystem::permissions(folder_ / "ids", std::filesystem::perms::owner_all);
}

TEST_F(NamedSamplesTest, GivesEverySampleOfAllFilesOnceAnEpochWithItsInputsTogether) {
  std::filesystem::create_directory(folder_ / "ids");
  std::filesystem::create_directory(folder_ / "x");
  write(4, 0, "ids/a.safetensors", "x/a.safetensors");
  write(3, 4, "ids/b.safetensors", "x/b.safetensors");
  const auto samples = NamedSamples::open(
      example_numbers(), {.files = {{"ids", folder_ / "ids", "ids"}, {"x", folder_ / "x", "x"}}, .source = ""}, 1);
  ASSERT_TRUE(samples.ok()) << samples.error().message();
  EXPECT_EQ((*samples)->num_different(), 7);
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<double> seen;
    for (int64_t i = 0; i < 7; ++i) {
      const auto sample = (*samples)->read(7 * epoch + i, {}, skipped_);
      ASSERT_TRUE(sample.ok()) << sample.error().message();
      const double number = sample->named[1][0];
      seen.insert(number);
      EXPECT_EQ(sample->named[0], std::vector<double>(3, static_cast<double>(static_cast<int64_t>(number) % 5)));
    }
    EXPECT_EQ(seen.size(), 7);
  }
}

TEST_F(NamedSamplesTest, HoldsOutWhatTrainingDoesNotSee) {
  write(10, 0, "ids.safetensors", "x.safetensors");
  const auto samples =
      NamedSamples::open(example_numbers(),
                         {.files = {{"ids", folder_ / "ids.safetensors", "ids"}, {"x", folder_ / "x.safetensors", "x"}},
                          .held_out_share = 0.3,
                          .source = ""},
                         1);
  ASSERT_TRUE(samples.ok());
  const auto others = (*samples)->held_out();
  ASSERT_NE(others, nullptr);
  EXPECT_EQ((*samples)->num_different(), 7);
  EXPECT_EQ(others->num_different(), 3);
  std::set<double> seen;
  for (int64_t i = 0; i < 7; ++i) seen.insert((*samples)->read(i, {}, skipped_)->named[1][0]);
  for (int64_t i = 0; i < 3; ++i) seen.insert(others->read(i, {}, skipped_)->named[1][0]);
  EXPECT_EQ(seen.size(), 10);
  EXPECT_TRUE(others->read(3, {}, skipped_)->stands_in);
}

TEST_F(NamedSamplesTest, WhatDoesNotFitIsToldByName) {
  write(4, 0, "ids.safetensors", "x.safetensors");
  const NamedFile ids{"ids", folder_ / "ids.safetensors", "ids"}, x{"x", folder_ / "x.safetensors", "x"};
  EXPECT_EQ(refusal({ids, x}), "");
  const auto expect = [&](const std::vector<NamedFile>& files, const std::string& says) {
    EXPECT_NE(refusal(files).find(says), std::string::npos) << refusal(files);
  };
  expect({ids}, "inputs.x: is missing, but the program reads it");
  expect({ids, x, {"y", folder_ / "x.safetensors", "x"}}, "inputs.y: is no input of the program");
  expect({ids, {"x", folder_ / "x.safetensors", "z"}}, "has no tensor 'z'");
  write_tensor(folder_ / "flat.safetensors", "x", WeightType::kF32, {4}, std::vector<float>(4));
  expect({ids, {"x", folder_ / "flat.safetensors", "x"}}, "lacks the dim 'h'");
  write_tensor(folder_ / "wide.safetensors", "x", WeightType::kF32, {4, 3}, std::vector<float>(12));
  expect({ids, {"x", folder_ / "wide.safetensors", "x"}}, "the dim 'h' has 2 elements");
  write_tensor(folder_ / "few.safetensors", "x", WeightType::kF32, {3, 2}, std::vector<float>(6));
  expect({ids, {"x", folder_ / "few.safetensors", "x"}}, "has 3 samples, but 'ids' has 4");
  write_tensor(folder_ / "real.safetensors", "ids", WeightType::kF32, {4, 3}, std::vector<float>(12));
  expect({{"ids", folder_ / "real.safetensors", "ids"}, x}, "is of type F32");
  write_tensor(folder_ / "large.safetensors", "ids", WeightType::kI64, {4, 3}, std::vector<int64_t>(12, 5));
  const auto samples = NamedSamples::open(
      example_numbers(), {.files = {{"ids", folder_ / "large.safetensors", "ids"}, x}, .source = ""}, 1);
  ASSERT_TRUE(samples.ok());
  const auto sample = (*samples)->read(0, {}, skipped_);
  ASSERT_FALSE(sample.ok());
  EXPECT_NE(sample.error().message().find("has 5 in sample"), std::string::npos) << sample.error().message();
}

}  // namespace
}  // namespace weft
