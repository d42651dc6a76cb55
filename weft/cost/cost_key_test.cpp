#include "weft/cost/cost_key.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_set>

#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft::cost_key_test {
namespace {

/// Every list of one to four different ranks out of `num_ranks`: consecutive ones, with gaps, and in any order.
std::vector<std::vector<int64_t>> rank_lists(int64_t num_ranks) {
  std::vector<std::vector<int64_t>> lists;
  std::vector<int64_t> ranks;
  const std::function<void()> extend = [&] {
    if (!ranks.empty()) lists.push_back(ranks);
    if (ranks.size() == 4) return;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) continue;
      ranks.push_back(rank);
      extend();
      ranks.pop_back();
    }
  };
  extend();
  return lists;
}

/// With pp and without.
std::vector<std::vector<std::string>> axis_orders() {
  std::vector<std::vector<std::string>> orders;
  for (std::vector<std::string> axes :
       std::vector<std::vector<std::string>>{{"cp", "dp", "tp"}, {"cp", "dp", "pp", "tp"}}) {
    do {
      orders.push_back(axes);
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
  return orders;
}

/// Makes the key of every meaning twice; the first of a meaning must be new, the second must not.
class Keys {
 public:
  void expect_new(const Plan& plan, const ModulePlan& module, double samples, double taken) {
    EXPECT_TRUE(seen_.insert(keys_.key_of(plan, module, samples, taken)).second)
        << text(module) << ", samples " << samples << ", of which times are " << taken;
    EXPECT_FALSE(seen_.insert(keys_.key_of(plan, module, samples, taken)).second) << text(module);
  }
  size_t size() const { return seen_.size(); }

 private:
  static std::string text(const ModulePlan& m) {
    std::string text = "axes";
    for (const std::string& axis : m.axis_order) text += " " + axis;
    text += ", ranks";
    for (const int64_t rank : m.ranks) text += " " + std::to_string(rank);
    text += ", degrees";
    for (const int64_t degree : {m.tp, m.cp, m.cp_ulysses, m.ep, m.pp, m.dp}) text += " " + std::to_string(degree);
    return text;
  }

  CostKeys keys_;
  std::unordered_set<CostKey, CostKey::Hash> seen_;
};

TEST(CostKey, EveryListOfRanksInEveryOrderOfAxesHasItsOwn) {
  const std::vector<std::vector<int64_t>> lists = rank_lists(kIsSanitized ? 5 : 7);
  const std::vector<std::vector<std::string>> orders = axis_orders();
  ASSERT_EQ(orders.size(), 6u + 24u);
  const Plan plan;
  Keys keys;
  for (const auto& ranks : lists) {
    for (const auto& order : orders) {
      for (const int64_t tp : {1, 2, 4}) {
        ModulePlan module{.ranks = ranks, .axis_order = order};
        module.tp = tp;
        keys.expect_new(plan, module, 1, 1);
      }
    }
  }
  EXPECT_EQ(keys.size(), lists.size() * orders.size() * 3);
}

TEST(CostKey, EverySettingHasItsOwn) {
  const std::vector<int64_t> degrees = kIsSanitized ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 2, 4};
  Plan plan;
  Keys keys;
  size_t num_meanings = 0;
  // Settings that are numbered in one loop: a digit of `rest` each.
  const size_t num_degrees = degrees.size();
  const size_t num_combinations = num_degrees * num_degrees * num_degrees * num_degrees * num_degrees * num_degrees;
  for (size_t combination = 0; combination < num_combinations; ++combination) {
    size_t rest = combination;
    ModulePlan module{.ranks = {0, 1, 2, 3}, .axis_order = {"tp", "cp", "dp", "pp"}};
    for (const DegreeName& degree : kDegreeNames) {
      if (degree.value == &Degrees::vpp) continue;  // costs of blocks are the same for any number of chunks
      module.*degree.value = degrees[rest % num_degrees];
      rest /= num_degrees;
    }
    for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio, ModuleKind::kLlm}) {
      for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp32}) {
        for (const int switches : {0, 1, 2, 3, 4, 7}) {
          for (const double samples : {0.5, 1.0, 1.0 + 1e-15, 64.0}) {
            module.kind = kind;
            module.sequence_parallel = (switches & 1) != 0;
            module.experts_over_tp = (switches & 4) != 0;
            plan.overlap_tp = (switches & 2) != 0;
            plan.precision.compute = precision;
            for (const double taken : {samples, 2 * samples}) {
              keys.expect_new(plan, module, samples, taken);
              ++num_meanings;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(keys.size(), num_meanings);
}

TEST(CostKey, WhereListsAscendTheirEndsSayAsMuch) {
  const Plan plan;
  CostKeys looking, trusting;
  trusting.assume_ascending();
  int num_consecutive = 0;
  // Every set of ranks below eight, in order.
  for (int set = 1; set < 256; ++set) {
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < 8; ++rank) {
      if ((set >> rank & 1) != 0) ranks.push_back(rank);
    }
    const ModulePlan module{.ranks = ranks, .axis_order = {"tp", "cp", "dp"}};
    const CostKey key = trusting.key_of(plan, module, 1, 1);
    EXPECT_EQ(key, looking.key_of(plan, module, 1, 1)) << set;
    num_consecutive += key.rank_list == 0 ? 1 : 0;
  }
  EXPECT_EQ(num_consecutive, 8 * 9 / 2);
}

TEST(CostKey, LongListsThatDifferInOnePlaceDiffer) {
  std::vector<int64_t> ranks(4096);
  std::iota(ranks.begin(), ranks.end(), 0);
  const Plan plan;
  Keys keys;
  keys.expect_new(plan, {.ranks = ranks, .axis_order = {"tp", "cp", "dp"}}, 1, 1);
  for (size_t i = 0; i + 1 < ranks.size(); i += 5) {
    std::swap(ranks[i], ranks[i + 1]);
    keys.expect_new(plan, {.ranks = ranks, .axis_order = {"tp", "cp", "dp"}}, 1, 1);
    std::swap(ranks[i], ranks[i + 1]);
  }
}

}  // namespace
}  // namespace weft::cost_key_test
