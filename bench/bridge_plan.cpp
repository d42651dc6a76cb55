// Where an encoder's rows go, planned on one rank of 1,024 for a batch of 4,096 samples: this rank's own messages of
// rows and gradients (bridge_routes.h), against a plan of all ranks' messages, row by row. What ranks tell each other
// is taken as given; the time to sort it in is counted. Samples lie in another order in the encoder than in the llm, as
// after balancing.
#include <algorithm>
#include <numeric>
#include <random>
#include <time.h>

#include <fmt/format.h>

#include "tests/support/mesh/row_route.h"
#include "weft/base/check.h"
#include "weft/meaning/bridge_routes.h"

namespace {

using namespace weft;

constexpr int64_t kRanks = 1024, kSamples = 4096;

struct Setting {
  const char* name;
  int64_t encoder_tp;
  int64_t llm_tp;
  bool divides_rows;
  int64_t num_macro_batches;
};

/// Of this thread's processor: others that share it do not count.
double processor_ms() {
  timespec now{};
  WEFT_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0, "no clock");
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Samples in turn, in a shuffled order.
BatchAssignment::Shares deal(int64_t ranks, int64_t batches, std::mt19937_64& random) {
  std::vector<int64_t> samples(kSamples);
  std::iota(samples.begin(), samples.end(), int64_t{0});
  std::shuffle(samples.begin(), samples.end(), random);
  BatchAssignment::Shares shares(static_cast<size_t>(ranks));
  for (auto& share : shares) share.resize(static_cast<size_t>(batches));
  for (int64_t i = 0; i < kSamples; ++i)
    shares[static_cast<size_t>(i % ranks)][static_cast<size_t>(i / ranks % batches)].push_back(
        samples[static_cast<size_t>(i)]);
  return shares;
}

void measure(const Setting& setting) {
  std::mt19937_64 random(1);
  const int64_t encoder_dp = kRanks / setting.encoder_tp, llm_dp = kRanks / setting.llm_tp;
  const BatchAssignment::Shares encoder = deal(encoder_dp, setting.num_macro_batches, random);
  const BatchAssignment::Shares llm = deal(llm_dp, kSamples / llm_dp, random);
  std::vector<MediaRowCounts> media(kSamples);
  for (MediaRowCounts& counts : media) counts.image = static_cast<int64_t>(random() % 512);
  BridgeEnds ends{.makers = {},
                  .takers = {},
                  .makers_are_copies = setting.encoder_tp > 1,
                  .takers_are_copies = setting.llm_tp > 1 && !setting.divides_rows};
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    ends.makers.push_back(rank / setting.encoder_tp);
    ends.takers.push_back(rank / setting.llm_tp);
  }
  const RowNumbers numbers(ModuleKind::kVision, encoder, media);
  RowLists taken(kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    for (const auto& samples : llm[static_cast<size_t>(rank / setting.llm_tp)]) {
      std::vector<int64_t> rows = numbers.rows_of(samples);
      if (setting.divides_rows) {
        const auto place = rank % setting.llm_tp, count = std::ssize(rows);
        rows = {rows.begin() + place * count / setting.llm_tp, rows.begin() + (place + 1) * count / setting.llm_tp};
      }
      auto& all = taken[static_cast<size_t>(rank)];
      all.insert(all.end(), rows.begin(), rows.end());
    }
  }
  std::vector<std::vector<RowRun>> runs(kRanks);
  for (int64_t rank = 0; rank < kRanks; ++rank)
    add_runs(taken[static_cast<size_t>(rank)], rank, 0, runs[static_cast<size_t>(rank)]);

  std::vector<double> own_ms;
  size_t num_messages = 0, num_neighbours = 0;
  std::vector<OwnRoute> own_routes;
  for (int64_t rank = 0; rank < kRanks; rank += 61) {
    own_routes.clear();
    BridgeRoutes routes(ends, rank);
    const double start = processor_ms();
    const RowNumbers own_numbers(ModuleKind::kVision, encoder, media);
    routes.begin(own_numbers, llm);
    if (setting.divides_rows) {
      const std::vector<int64_t> neighbours = routes.neighbours();
      num_neighbours = std::max(num_neighbours, neighbours.size());
      std::vector<RowRun> told = runs[static_cast<size_t>(rank)];
      for (const int64_t other : neighbours) {
        const auto& theirs = runs[static_cast<size_t>(other)];
        told.insert(told.end(), theirs.begin(), theirs.end());
      }
      routes.take_only(told);
    }
    for (int64_t k = 0; k < setting.num_macro_batches; ++k) {
      own_routes.push_back(routes.rows(k));
      own_routes.push_back(routes.gradients(k));
    }
    own_ms.push_back(processor_ms() - start);
    num_messages = 0;
    for (const OwnRoute& route : own_routes) num_messages += route.sent.size() + route.received.size();
  }

  const double start = processor_ms();
  std::vector<RowLists> made_of(static_cast<size_t>(setting.num_macro_batches), RowLists(kRanks)), taken_of = made_of;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    for (int64_t k = 0; k < setting.num_macro_batches; ++k) {
      const Range rows = numbers.rows(k, ends.makers[rank]);
      for (int64_t row = rows.begin; row < rows.end; ++row)
        made_of[static_cast<size_t>(k)][rank].push_back(row - numbers.rows(k).begin);
    }
    for (const int64_t row : taken[rank]) {
      const int64_t k = numbers.macro_of(row);
      taken_of[static_cast<size_t>(k)][rank].push_back(row - numbers.rows(k).begin);
    }
  }
  for (size_t k = 0; k < made_of.size(); ++k) {
    const RowRoute there = plan_row_route(made_of[k], taken_of[k]), back = plan_row_route(taken_of[k], made_of[k]);
    const int64_t last = (kRanks - 1) / 61 * 61;
    const auto same = [](OwnRoute a, OwnRoute b) {
      a.moves_rows = b.moves_rows = false;
      return a == b;
    };
    WEFT_CHECK(same(own_part(there, last), own_routes[2 * k]) && same(own_part(back, last), own_routes[2 * k + 1]),
               "macro batch {} goes another way", k);
  }
  const double all_ms = processor_ms() - start;
  const double most_ms = *std::max_element(own_ms.begin(), own_ms.end());
  fmt::print(
      "{}: {} macro batches, {} neighbours tell: own messages (about {}) in {:.2f} ms, at most {:.2f} ms; all ranks' "
      "row "
      "by row {:.0f} ms, {:.0f} times as long\n",
      setting.name, setting.num_macro_batches, num_neighbours, num_messages, median(own_ms), most_ms, all_ms,
      all_ms / median(own_ms));
}

}  // namespace

int main() {
  measure({"encoder dp 1024, llm tp 8 x dp 128", 1, 8, false, 4});
  measure({"encoder dp 1024, llm tp 8 x dp 128 with sequence parallelism", 1, 8, true, 4});
  measure({"encoder tp 8 x dp 128, llm tp 8 x dp 128", 8, 8, false, 16});
  measure({"encoder tp 8 x dp 128, llm tp 8 x dp 128 with sequence parallelism", 8, 8, true, 16});
  measure({"encoder tp 2 x dp 512, llm tp 16 x dp 64 with sequence parallelism", 2, 16, true, 8});
  return 0;
}
