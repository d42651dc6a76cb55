#include "weft/data/conversations/packed_order.h"

#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(PackSamples, RowsAreFullAndHoldEverySampleOnce) {
  std::vector<int64_t> lengths;
  uint64_t state = 9;
  for (int i = 0; i < 500; ++i)
    lengths.push_back(1 + static_cast<int64_t>((state = state * 6364136223846793005ULL + 1) >> 55));
  lengths.push_back(5000);
  const auto rows = pack_samples(lengths, 1024);
  std::set<size_t> seen;
  int64_t total = 0;
  for (const auto& row : rows) {
    int64_t tokens = 0;
    for (const size_t sample : row) {
      EXPECT_TRUE(seen.insert(sample).second);
      tokens += lengths[sample];
    }
    EXPECT_TRUE(tokens <= 1024 || row.size() == 1);
    total += std::min<int64_t>(tokens, 1024);
  }
  EXPECT_EQ(seen.size(), lengths.size());
  EXPECT_GT(static_cast<double>(total) / static_cast<double>(1024 * rows.size()), 0.97);
}

/// Lengths of 1 to `most` tokens; every eleventh record cannot be used.
std::shared_ptr<const RecordLengths> some_lengths(const std::vector<int64_t>& sets, int32_t most) {
  auto lengths = std::make_shared<RecordLengths>();
  uint64_t state = 5;
  for (const int64_t records : sets) {
    std::vector<int32_t>& own = lengths->emplace_back();
    for (int64_t i = 0; i < records; ++i) {
      state = state * 6364136223846793005ULL + 1;
      own.push_back(i % 11 == 3 ? 0 : 1 + static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(most)));
    }
  }
  return lengths;
}

PackedOrder::Samples samples_of(const std::vector<SampleOrder::Set>& sets, uint64_t seed) {
  const SampleOrder order(sets, seed);
  return {.epoch = order.epoch_samples(), .record_of = [order](int64_t i) { return order.at(i); }};
}

using Counts = std::map<std::pair<size_t, int64_t>, int>;

TEST(PackedOrder, AnEpochHasEveryUsableRecordInOneRowAndTellsTheOthers) {
  const std::vector<SampleOrder::Set> sets = {{.num_records = 2500, .num_held_out = 100}, {.num_records = 700}};
  const auto lengths = some_lengths({2500, 700}, 200);
  const PackedOrder order(samples_of(sets, 7), lengths, 512);
  int64_t row = 0;
  for (double epoch = 1; epoch <= 3; ++epoch) {
    Counts used, broken;
    for (; row < order.rows_of(epoch); ++row) {
      int64_t tokens = 0;
      const PackedOrder::Row own = order.row(row);
      ASSERT_FALSE(own.records.empty());
      for (const auto& place : own.records) {
        ++used[{place.set, place.record}];
        tokens += (*lengths)[place.set][static_cast<size_t>(place.record)];
      }
      for (const auto& place : own.broken) ++broken[{place.set, place.record}];
      EXPECT_LE(tokens, 512);
    }
    EXPECT_EQ(used.size() + broken.size(), 3100u) << "all but those held out";
    for (const auto& [place, count] : used) {
      EXPECT_EQ(count, 1);
      EXPECT_GT((*lengths)[place.first][static_cast<size_t>(place.second)], 0);
    }
    for (const auto& [place, count] : broken) {
      EXPECT_EQ(count, 1);
      EXPECT_EQ((*lengths)[place.first][static_cast<size_t>(place.second)], 0);
    }
  }
  EXPECT_EQ(order.rows_of(1), order.epoch_rows());
  EXPECT_GT(order.fill_share(), 0.98);
  EXPECT_LE(order.fill_share(), 1);
  EXPECT_NEAR(static_cast<double>(order.rows_of(2.5)),
              static_cast<double>(order.rows_of(2)) + 0.5 * static_cast<double>(order.epoch_rows()), 3);
}

TEST(PackedOrder, ARowIsTheSameInWhateverOrderAndByWhateverThreadItIsAskedFor) {
  const std::vector<SampleOrder::Set> sets = {{.num_records = 5000, .weight = 3}, {.num_records = 900, .weight = 1}};
  const auto lengths = some_lengths({5000, 900}, 90);
  const PackedOrder first(samples_of(sets, 3), lengths, 256);
  constexpr int64_t kRows = 3000;
  std::vector<PackedOrder::Row> rows;
  for (int64_t i = 0; i < kRows; ++i) rows.push_back(first.row(i));
  const auto is_same = [](const PackedOrder::Row& a, const PackedOrder::Row& b) {
    return a.records == b.records && a.broken == b.broken;
  };
  const PackedOrder resumed(samples_of(sets, 3), lengths, 256);
  for (int64_t i = kRows - 1; i >= 0; i -= 7) EXPECT_TRUE(is_same(resumed.row(i), rows[static_cast<size_t>(i)])) << i;
  const PackedOrder shared(samples_of(sets, 3), lengths, 256);
  std::vector<std::thread> threads;
  std::vector<int> num_wrong(8);
  for (size_t t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < kRows; i += 8)
        num_wrong[t] += is_same(shared.row(static_cast<int64_t>(i)), rows[i]) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, std::vector<int>(8));
  // Weights are of records, and another seed is another order.
  int64_t of_first = 0, all = 0;
  for (const PackedOrder::Row& row : rows) {
    for (const auto& place : row.records) of_first += place.set == 0 ? 1 : 0;
    all += std::ssize(row.records);
  }
  EXPECT_NEAR(static_cast<double>(of_first) / static_cast<double>(all), 0.75, 0.02);
  EXPECT_FALSE(is_same(PackedOrder(samples_of(sets, 4), lengths, 256).row(0), rows[0]));
}

TEST(PackedOrder, EpochsWithoutEndAreNotPacked) {
  const PackedOrder order(samples_of({{.num_records = 3000}}, 7), some_lengths({3000}, 200), 512);
  // An hour where every epoch is packed.
  const auto many = static_cast<double>(order.rows_of(1e6));
  EXPECT_NEAR(many, 1e6 * static_cast<double>(order.epoch_rows()), 0.01 * many);
  EXPECT_EQ(order.rows_of(2e6), 2 * order.rows_of(1e6));
  EXPECT_GE(order.rows_of(PackedOrder::kCountedEpochs + 0.5), order.rows_of(PackedOrder::kCountedEpochs));
}

TEST(PackedOrder, WithoutAUsableRecordThereAreNoRows) {
  const auto none = std::make_shared<const RecordLengths>(RecordLengths{{0, 0, 0}});
  EXPECT_EQ(PackedOrder(samples_of({{.num_records = 3}}, 1), none, 16).epoch_rows(), 0);
}

}  // namespace
}  // namespace weft
