#include "weft/layers/context_attention.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/draws.h"
#include "tests/support/layers/compare_gradients.h"
#include "weft/base/divisors.h"
#include "weft/comm/run_ranks.h"
#include "weft/layers/recompute.h"
#include "weft/layers/transformer_layer.h"
#include "weft/tensor/rank_threads.h"

namespace weft::context_attention_test {
namespace {

constexpr AttentionMask kCausal{.is_causal = true};

class ContextAttention : public testing::Test {
 protected:
  ContextAttention() { use_rank_threads(1); }
};

/// Every rank has one thread: there are more of them than cores.
void run_on_ranks(int64_t num_ranks, const std::function<void(World&)>& body) {
  const auto error = run_ranks({.size = num_ranks}, [&](World& world) {
    use_rank_threads(1);
    body(world);
  });
  EXPECT_FALSE(error);
}

/// The groups of rank i of a world, all of whose ranks share rows.
ContextGroups groups_of(World& world, int64_t ulysses) {
  const int64_t ring = world.size() / ulysses;
  const int64_t place = world.rank() % ulysses, number = world.rank() / ulysses;
  ContextGroups groups{.rank = world.rank(), .num_ranks = world.size()};
  std::vector<int64_t> neighbours, same_places;
  for (int64_t i = 0; i < ulysses; ++i) neighbours.push_back(number * ulysses + i);
  for (int64_t i = 0; i < ring; ++i) same_places.push_back(i * ulysses + place);
  if (ulysses > 1) groups.ulysses = *world.group("ulysses", neighbours);
  if (ring > 1) groups.ring = *world.group("ring", same_places);
  return groups;
}

/// Attention of packed rows, and what one rank makes of it.
struct Case {
  HeadCounts heads;
  std::vector<int64_t> lengths;
  AttentionMask mask;
  RowDeal deal;
  AttentionKeeps keeps = AttentionKeeps::kResults;
  bool turns = true;
  at::Tensor qkv, dout;
  RotaryTable rotary;
  at::Tensor out, dqkv;
  double tolerance = 1e-12;
};

Case finished(Case c, uint64_t seed, at::ScalarType type = at::kDouble) {
  const PackedSegments segments(c.lengths);
  const int64_t rows = segments.num_rows();
  c.qkv = random_tensor({rows, c.heads.packed_width()}, seed, type);
  c.dout = random_tensor({rows, c.heads.heads * c.heads.head_dim}, seed + 1, type);
  if (c.turns) {
    const at::Tensor angles = 3 * random_tensor({rows, c.heads.head_dim / 2}, seed + 2);
    c.rotary = {at::cos(angles).to(type), at::sin(angles).to(type)};
  }
  const at::Tensor x = c.qkv.clone().set_requires_grad(true);
  const at::Tensor out = attention_core(x.clone(), c.heads, c.rotary, segments, c.mask, c.keeps);
  out.backward(c.dout);
  c.out = out.detach();
  c.dqkv = x.grad();
  return c;
}

at::Tensor rows_of(const at::Tensor& x, const RowDeal& deal, int64_t rank) {
  return x.index_select(0, at::tensor(deal.rows(rank), at::kLong));
}

/// Bytes that a rank sent.
struct Sent {
  int64_t ulysses = 0;
  int64_t ring = 0;

  static Sent so_far(const ContextGroups& groups) {
    return {groups.ulysses ? groups.ulysses->traffic().sent : 0, groups.ring ? groups.ring->traffic().sent : 0};
  }
  Sent operator-(const Sent& other) const { return {ulysses - other.ulysses, ring - other.ring}; }
  bool operator==(const Sent&) const = default;
};

void PrintTo(const Sent& sent, std::ostream* out) {
  *out << sent.ulysses << " in Ulysses groups, " << sent.ring << " in rings";
}

struct SentBothWays {
  Sent forward;
  Sent backward;
};

SentBothWays expect_case(const Case& c, const ContextGroups& groups) {
  const auto here = [&](const at::Tensor& x) { return rows_of(x, c.deal, groups.rank); };
  const PackedSegments segments(c.lengths);
  const RotaryTable rotary = c.turns ? RotaryTable{here(c.rotary.cos), here(c.rotary.sin)} : RotaryTable{};
  const ContextRows rows{.groups = &groups, .deal = c.deal};
  const at::Tensor x = here(c.qkv).set_requires_grad(true);
  const Sent before = Sent::so_far(groups);
  const at::Tensor out = context_attention(x.clone(), c.heads, rotary, segments, c.mask, c.keeps, rows);
  const Sent between = Sent::so_far(groups);
  out.backward(here(c.dout));
  EXPECT_EQ(out.scalar_type(), c.qkv.scalar_type());
  EXPECT_LE(relative_difference(out, here(c.out)), c.tolerance) << "value";
  EXPECT_LE(relative_difference(x.grad(), here(c.dqkv)), c.tolerance) << "gradient";
  return {between - before, Sent::so_far(groups) - between};
}

/// Runs all cases on all ways to share `num_ranks` between Ulysses and ring that the heads allow.
void expect_cases(const std::vector<Case>& cases, int64_t num_ranks) {
  for (const int64_t ulysses : divisors(num_ranks)) {
    run_on_ranks(num_ranks, [&](World& world) {
      const ContextGroups groups = groups_of(world, ulysses);
      for (size_t i = 0; i < cases.size(); ++i) {
        const HeadCounts& h = cases[i].heads;
        const int64_t most_sharers = (ulysses + h.kv_heads - 1) / h.kv_heads;
        if (h.heads < ulysses || h.heads / h.kv_heads < most_sharers) continue;
        SCOPED_TRACE(testing::Message() << "case " << i << ": " << num_ranks << " ranks, Ulysses of " << ulysses
                                        << ", rank " << world.rank() << ", " << h.heads << " heads, " << h.kv_heads
                                        << " of keys, " << PackedSegments(cases[i].lengths).num_rows() << " rows");
        expect_case(cases[i], groups);
      }
    });
  }
}

const std::vector<HeadCounts> kHeads = {{4, 4, 6}, {7, 7, 4}, {6, 6, 2}, {4, 2, 4}, {8, 2, 4}, {8, 1, 2}, {16, 4, 4}};
const std::vector<AttentionMask> kMasks = {
    kCausal, {}, {.is_causal = true, .window = 1}, {.is_causal = true, .window = 4}, {.is_causal = true, .window = 11}};
const std::vector<std::vector<int64_t>> kLengths = {{48},           {1},          {3, 1}, {5, 5, 5, 5, 1, 1},
                                                    {29, 2, 1, 17}, {0, 7, 0, 23}};

TEST_F(ContextAttention, ZigzagRowsAttendAsOnOneRank) {
  for (const int64_t num_ranks : {2, 3, 4, 8}) {
    std::vector<Case> cases;
    uint64_t seed = 1;
    for (const HeadCounts& heads : kHeads) {
      for (const AttentionMask& mask : kMasks) {
        const auto& lengths = kLengths[seed++ % kLengths.size()];
        cases.push_back(finished({heads, lengths, mask, RowDeal::zigzag(lengths, num_ranks)}, seed));
      }
    }
    expect_cases(cases, num_ranks);
  }
}

/// Any stretch of rows to any rank; some may get none.
RowDeal random_deal(int64_t num_rows, int64_t num_ranks, std::mt19937_64& random) {
  std::vector<std::vector<Range>> ranges(static_cast<size_t>(num_ranks));
  const auto longest = 1 + random() % 12;
  for (int64_t row = 0; row < num_rows;) {
    const int64_t end = std::min(num_rows, row + 1 + static_cast<int64_t>(random() % longest));
    ranges[random() % ranges.size()].push_back({row, end});
    row = end;
  }
  return RowDeal(ranges);
}

TEST_F(ContextAttention, AnyDealGivesTheSame) {
  std::mt19937_64 random(7);
  for (const int64_t num_ranks : {2, 3, 4, 6}) {
    std::vector<Case> cases;
    for (uint64_t round = 0; round < draws(uint64_t{16}); ++round) {
      std::vector<int64_t> lengths(1 + random() % 6);
      for (int64_t& length : lengths) length = 1 + static_cast<int64_t>(random() % (round % 4 == 0 ? 4 : 25));
      AttentionMask mask = kMasks[random() % 3];
      if (mask.window > 0) mask.window = 1 + static_cast<int64_t>(random() % 20);
      Case c{kHeads[random() % kHeads.size()], lengths, mask};
      c.deal = random_deal(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), num_ranks, random);
      c.keeps = random() % 3 == 0 ? AttentionKeeps::kNothing : AttentionKeeps::kResults;
      c.turns = random() % 4 != 0;
      cases.push_back(finished(c, random()));
    }
    expect_cases(cases, num_ranks);
  }
}

TEST_F(ContextAttention, SegmentsThatNoRankSharesSendNothing) {
  const std::vector<int64_t> lengths = {6, 6, 3, 9, 4, 8, 5, 7};
  const std::vector<int64_t> borders = {0, 6, 12, 15, 24, 28, 36, 41, 48};
  for (const AttentionMask& mask : kMasks) {
    for (const int64_t ulysses : {1, 2, 4}) {
      const Case c = finished({{4, 2, 4}, lengths, mask, RowDeal::contiguous(48, 4, borders, borders)}, 3);
      run_on_ranks(4, [&](World& world) {
        const ContextGroups groups = groups_of(world, ulysses);
        const SentBothWays sent = expect_case(c, groups);
        EXPECT_EQ(sent.forward, Sent{});
        EXPECT_EQ(sent.backward, Sent{});
      });
    }
  }
}

TEST_F(ContextAttention, OnlyGroupsThatShareASegmentExchange) {
  // Ranks 0 and 1 share the first segment; 2 and 3 have one each.
  const Case c = finished({{4, 2, 4}, {20, 8, 9}, kCausal, RowDeal({{{0, 9}}, {{9, 20}}, {{20, 28}}, {{28, 37}}})}, 5);
  run_on_ranks(4, [&](World& world) {
    const SentBothWays in_ulysses = expect_case(c, groups_of(world, 2));
    EXPECT_EQ(in_ulysses.forward.ulysses > 0, world.rank() < 2);
    EXPECT_EQ(in_ulysses.forward.ring + in_ulysses.backward.ring, 0);
    const SentBothWays in_ring = expect_case(c, groups_of(world, 1));
    // Rank 1 sees the keys of rank 0 and sends it their gradients; nobody else has anything for anyone.
    const int64_t bytes = 9 * 2 * 2 * 4 * 8;
    EXPECT_EQ(in_ring.forward.ring, world.rank() == 0 ? bytes : 0);
    EXPECT_EQ(in_ring.backward.ring, world.rank() < 2 ? bytes : 0);
  });
}

TEST_F(ContextAttention, ARingMovesKeysAndValuesThatAreSeenOncePerRank) {
  constexpr int64_t kRows = 6, kKeyHeads = 2, kDim = 4;  // rows of a rank
  for (const int64_t num_ranks : {2, 3, 5}) {
    const std::vector<int64_t> lengths = {kRows * num_ranks};
    const RowDeal deal = RowDeal::zigzag(lengths, num_ranks);
    const int64_t all = kRows * 2 * kKeyHeads * kDim * 8;
    for (const AttentionKeeps keeps : {AttentionKeeps::kResults, AttentionKeeps::kNothing}) {
      const Case full = finished({{4, kKeyHeads, kDim}, lengths, {}, deal, keeps}, 3);
      const Case causal = finished({{4, kKeyHeads, kDim}, lengths, kCausal, deal, keeps}, 4);
      run_on_ranks(num_ranks, [&](World& world) {
        const ContextGroups groups = groups_of(world, 1);
        const int64_t again = keeps == AttentionKeeps::kNothing ? 1 : 0;
        const SentBothWays sent = expect_case(full, groups);
        EXPECT_EQ(sent.forward.ring, (num_ranks - 1) * all);
        EXPECT_EQ(sent.backward.ring, (2 + again) * (num_ranks - 1) * all);
        // Of two chunks a rank, ranks further back see the first only, and those before it both.
        const int64_t before = world.rank(), after = num_ranks - 1 - world.rank();
        const int64_t keys = before * all + after * all / 2;
        const int64_t gradients = after * all + before * all / 2;
        const SentBothWays sent_causal = expect_case(causal, groups);
        EXPECT_EQ(sent_causal.forward.ring, keys);
        EXPECT_EQ(sent_causal.backward.ring, (1 + again) * keys + gradients);
      });
    }
  }
}

TEST_F(ContextAttention, WindowsBoundWhatTravels) {
  // Rank r's rows follow those of rank r - 1, of which the first five are seen.
  constexpr int64_t kRows = 20, kWindow = 6;
  const std::vector<int64_t> lengths = {3 * kRows};
  const RowDeal deal({{{0, 20}}, {{20, 40}}, {{40, 60}}});
  const Case c = finished({{2, 2, 4}, lengths, {.is_causal = true, .window = kWindow}, deal}, 3);
  run_on_ranks(3, [&](World& world) {
    const SentBothWays sent = expect_case(c, groups_of(world, 1));
    const int64_t bytes = (kWindow - 1) * 2 * 2 * 4 * 8;
    EXPECT_EQ(sent.forward.ring, world.rank() < 2 ? bytes : 0);
    EXPECT_EQ(sent.backward.ring, (world.rank() < 2 ? bytes : 0) + (world.rank() > 0 ? bytes : 0));
  });
}

TEST_F(ContextAttention, UlyssesMovesRowsForHeads) {
  constexpr int64_t kRows = 6, kRanks = 4, kHeadsAll = 8, kDim = 2;
  const std::vector<int64_t> lengths = {kRows * kRanks};
  for (const int64_t key_heads : {8, 4, 2, 1}) {
    const Case c = finished({{kHeadsAll, key_heads, kDim}, lengths, kCausal, RowDeal::zigzag(lengths, kRanks)}, 3);
    run_on_ranks(kRanks, [&](World& world) {
      const SentBothWays sent = expect_case(c, groups_of(world, kRanks));
      // To each of the others its heads, with copies of keys where there are fewer of them than ranks.
      const int64_t queries = kHeadsAll / kRanks;
      const int64_t packed = queries + 2 * std::max<int64_t>(1, key_heads / kRanks);
      const int64_t bytes = (kRanks - 1) * kRows * (packed + queries) * kDim * 8;
      EXPECT_EQ(sent.forward, (Sent{.ulysses = bytes}));
      EXPECT_EQ(sent.backward, (Sent{.ulysses = bytes}));
    });
  }
}

TEST_F(ContextAttention, LowerPrecisionsAreAsPreciseAsOnOneRank) {
  const std::vector<int64_t> lengths = {90, 7, 150};
  const std::vector<std::pair<at::ScalarType, double>> types = {{at::kFloat, 4e-6}, {at::kBFloat16, 2.5e-2}};
  for (const auto& [type, tolerance] : types) {
    std::vector<Case> cases;
    for (const AttentionMask& mask : {kMasks[0], kMasks[1], kMasks[4]}) {
      cases.push_back(finished({{8, 2, 16}, lengths, mask, RowDeal::zigzag(lengths, 4)}, 3, type));
      cases.back().tolerance = tolerance;
    }
    expect_cases(cases, 4);
  }
}

TEST_F(ContextAttention, ABlockThatIsRunAgainCommunicatesAgain) {
  const Case c = finished({{4, 2, 4}, {30, 3}, kCausal, RowDeal::zigzag(std::vector<int64_t>{30, 3}, 4)}, 3);
  const PackedSegments segments(c.lengths);
  run_on_ranks(4, [&](World& world) {
    const ContextGroups groups = groups_of(world, 2);
    const ContextRows rows{.groups = &groups, .deal = c.deal};
    const auto here = [&](const at::Tensor& x) { return rows_of(x, c.deal, groups.rank); };
    const RotaryTable rotary{here(c.rotary.cos), here(c.rotary.sin)};
    const at::Tensor x = here(c.qkv).set_requires_grad(true);
    const at::Tensor out = recomputed(
        [&](const at::Tensor& same) {
          return context_attention(same.clone(), c.heads, rotary, segments, c.mask, c.keeps, rows);
        },
        x, x);
    out.backward(here(c.dout));
    EXPECT_LE(relative_difference(out, here(c.out)), c.tolerance);
    EXPECT_LE(relative_difference(x.grad(), here(c.dqkv)), c.tolerance);
  });
}

TEST_F(ContextAttention, ALayerSharesRowsOutByItsCall) {
  const std::vector<int64_t> lengths = {17, 4, 11};
  const PackedSegments segments(lengths);
  const RowDeal deal = RowDeal::zigzag(lengths, 2);
  constexpr int64_t kWidth = 12;
  const HeadCounts heads{4, 2, 4};
  const auto make_layer = [&] {
    AttentionLayer layer{.heads = heads, .mask = kCausal};
    layer.qkv = random_parameter({heads.packed_width(), kWidth}, 1);
    layer.out = random_parameter({kWidth, heads.heads * heads.head_dim}, 2);
    return layer;
  };
  const at::Tensor x = random_tensor({segments.num_rows(), kWidth}, 3);
  const RotaryTable no_table;
  for (const bool recomputes : {false, true}) {
    const RunContext context{.recomputes_attention = recomputes};
    const AttentionLayer whole = make_layer();
    const at::Tensor expected = whole.forward(x, {.segments = segments, .rotary = no_table}, context);
    expected.sum().backward();
    std::vector<at::Tensor> gradients(2);
    run_on_ranks(2, [&](World& world) {
      const ContextGroups groups = groups_of(world, 1);
      const ContextRows rows{.groups = &groups, .deal = deal};
      const AttentionLayer layer = make_layer();
      const at::Tensor out = layer.forward(rows_of(x, deal, world.rank()),
                                           {.segments = segments, .rotary = no_table, .context = &rows}, context);
      EXPECT_LE(relative_difference(out, rows_of(expected, deal, world.rank())), 1e-12);
      out.sum().backward();
      gradients[static_cast<size_t>(world.rank())] = layer.qkv->gradient;
    });
    EXPECT_LE(relative_difference(gradients[0] + gradients[1], whole.qkv->gradient), 1e-12);
  }
}

}  // namespace
}  // namespace weft::context_attention_test
