#include "weft/loader/packed_source.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/loader/conversation_files.h"

namespace weft {
namespace {

class PackedRows : public testing::Test {
 protected:
  void open(double held_out_share = 0) {
    DataSettings settings{.source = "code",
                          .files = {{.file = files_.folder() / "chats.jsonl", .folder = files_.folder()}}};
    settings.held_out_share = held_out_share;
    settings.encode.cutoff_tokens = 160;
    auto data = ConversationData::open(files_.model(), form_, files_.folder() / "model", settings);
    WEFT_CHECK(data.ok(), "{}", data.error().message());
    data_ = *std::move(data);
    lengths_ = std::make_shared<const RecordLengths>(
        record_lengths(*data_, [](int64_t count, const std::function<void(int64_t)>& work) {
          for (int64_t i = 0; i < count; ++i) work(i);
        }));
  }
  std::shared_ptr<PackedSource> source(bool is_held_out = false) const {
    auto made = PackedSource::create(data_, lengths_, 5, is_held_out, "code");
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    return *std::move(made);
  }
  /// As ranks do: until nothing new is found.
  static Sample read(PackedSource& source, int64_t index, int64_t* num_found = nullptr) {
    for (;;) {
      std::vector<SkippedSample> skipped, news;
      Sample sample = *source.read(index, {}, skipped);
      std::copy_if(skipped.begin(), skipped.end(), std::back_inserter(news), [](const auto& s) { return s.is_new; });
      if (news.empty()) return sample;
      if (num_found != nullptr) *num_found += std::ssize(news);
      source.leave_out(news);
    }
  }

  ConversationFiles files_;
  SampleForm form_{.vocabulary = 440, .max_tokens = 512, .merge_size = 2, .patch_elements = 54, .mel_bins = 9};
  std::shared_ptr<const ConversationData> data_;
  std::shared_ptr<const RecordLengths> lengths_;
};

TEST_F(PackedRows, LengthsAreThoseOfTheSample) {
  files_.write_records(64);
  open();
  const auto rows = source();
  ASSERT_LT(rows->num_different(), 40);
  for (int64_t i = 0; i < rows->num_different(); ++i) {
    std::vector<SkippedSample> skipped;
    const auto lengths = rows->lengths_of(i, skipped);
    const auto sample = rows->read(i, {}, skipped);
    ASSERT_TRUE(lengths.ok() && sample.ok() && skipped.empty()) << i;
    EXPECT_EQ(lengths->load.llm, sample->load.llm);
    EXPECT_EQ(lengths->load.vision, sample->load.vision);
    EXPECT_EQ(lengths->load.audio, sample->load.audio);
    EXPECT_EQ(std::ssize(lengths->load.llm), sample->num_segments());
    EXPECT_EQ(num_tokens(lengths->load.llm), static_cast<double>(sample->ids.size()));
    EXPECT_LE(std::ssize(sample->ids), 160);
    const auto count = [&](const char* token) {
      return std::count(sample->ids.begin(), sample->ids.end(), files_.id_of(token));
    };
    EXPECT_EQ(lengths->rows.image, count("<|image_pad|>"));
    EXPECT_EQ(lengths->rows.video, count("<|video_pad|>"));
    EXPECT_EQ(lengths->rows.audio, count("<|AUDIO|>"));
  }
}

TEST_F(PackedRows, ARowDoesNotDependOnWhenABrokenRecordWasFound) {
  files_.write_records(90, 3);
  open();
  const auto knows = source();
  int64_t num_found = 0;
  std::vector<Sample> rows;
  for (int64_t i = 0; i < 2 * knows->num_different(); ++i) rows.push_back(read(*knows, i, &num_found));
  EXPECT_GT(num_found, 0);
  for (int64_t i = std::ssize(rows) - 1; i >= 0; --i) {
    const Sample& expected = rows[static_cast<size_t>(i)];
    for (const auto& asked : {source(), knows}) {
      const Sample found = read(*asked, i);
      EXPECT_TRUE(found.ids == expected.ids && found.segments == expected.segments && found.pixels == expected.pixels &&
                  found.features == expected.features && found.stands_in == expected.stands_in)
          << i;
    }
  }
}

TEST_F(PackedRows, EveryBrokenRecordIsToldOnceAnEpoch) {
  files_.write_records(90, 3);
  open();
  const auto rows = source();
  std::map<std::string, int> told;
  for (int64_t i = 0; i < rows->num_different(); ++i) {
    read(*rows, i);
    std::vector<SkippedSample> skipped;
    ASSERT_TRUE(rows->read(i, {}, skipped).ok());
    for (const SkippedSample& record : skipped) ++told[record.source];
  }
  EXPECT_EQ(told.size(), 30u);
  for (const auto& [record, count] : told) EXPECT_EQ(count, 1) << record;
}

TEST_F(PackedRows, ARowOfWhichNothingCanBeUsedIsReplacedByTheNext) {
  // Longer than half a row, so that each stands alone; every second picture is damaged.
  files_.write_records(2);
  std::string lines;
  for (int i = 0; i < 12; ++i) {
    lines += fmt::format(
        R"({{"messages": [{{"role": "user", "content": "<image>{}"}}, {{"role": "assistant", "content": "Yes."}}], "images": ["media/{}"]}})"
        "\n",
        std::string(100, static_cast<char>('a' + i)), i % 2 == 0 ? "plain.jpg" : "cut.jpg");
  }
  files_.write("chats.jsonl", lines);
  open();
  const auto rows = source();
  ASSERT_EQ(rows->num_different(), 12);
  int64_t num_stand_ins = 0;
  for (int64_t i = 0; i < 12; ++i) {
    const Sample row = read(*rows, i);
    EXPECT_FALSE(row.ids.empty());
    num_stand_ins += row.stands_in ? 1 : 0;
    if (row.stands_in) {
      EXPECT_EQ(row.ids, read(*rows, i + 1).ids) << i;
    }
  }
  EXPECT_EQ(num_stand_ins, 6);
}

TEST_F(PackedRows, DataWithoutAUsableRecordAreRefusedWithTheReason) {
  files_.write("chats.jsonl", "{\"messages\": [{\n{\"messages\": [{\n");
  open();
  const auto refused = PackedSource::create(data_, lengths_, 5, false, "code");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("has no record that can be used; the first: "), std::string::npos)
      << refused.error().message();
}

}  // namespace
}  // namespace weft
