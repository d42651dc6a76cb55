#include "weft/meaning/deal.h"

#include <algorithm>
#include <array>
#include <bit>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Bounds on improvement, so that it stays a small part of the whole.
constexpr int kMostExchanges = 64;
constexpr int64_t kMostTrials = 16'000;
constexpr int64_t kMostPairs = 4'000'000;  ///< of two bins: all of them for bins of some 250 items
constexpr double kNegligible = 1e-5;       ///< a gain, as a share

/// Values and their items as one number each, so that sorting compares nothing but whole numbers. Values that are the
/// same in single precision count as equal, and keep the order of their items.
using Keys = std::vector<uint64_t>;

uint64_t lightest_first_key(double value, size_t item) {
  return static_cast<uint64_t>(std::bit_cast<uint32_t>(static_cast<float>(value))) << 32 | item;
}
uint64_t heaviest_first_key(double value, size_t item) {
  return static_cast<uint64_t>(~std::bit_cast<uint32_t>(static_cast<float>(value))) << 32 | item;
}
size_t item_of(uint64_t key) {
  return key & 0xffffffffu;
}

/// Sorts keys that are in the order of their items, by value alone: a radix sort of three digits, which for thousands
/// of keys takes a third of std::sort's time.
void sort_by_value(Keys& keys) {
  constexpr size_t kFew = 256;
  if (keys.size() <= kFew) {
    std::sort(keys.begin(), keys.end());
    return;
  }
  constexpr int kBits = 11;
  Keys sorted(keys.size());
  for (int shift = 32; shift < 64; shift += kBits) {
    const auto digit = [shift](uint64_t key) { return key >> shift & ((1u << kBits) - 1); };
    std::array<uint32_t, (1u << kBits) + 1> ends{};
    for (const uint64_t key : keys) ++ends[digit(key) + 1];
    for (size_t i = 1; i < ends.size(); ++i) ends[i] += ends[i - 1];
    for (const uint64_t key : keys) sorted[ends[digit(key)]++] = key;
    keys.swap(sorted);
  }
}

Keys heaviest_first(std::span<const double> values) {
  Keys keys(values.size());
  for (size_t i = 0; i < values.size(); ++i) keys[i] = heaviest_first_key(values[i], i);
  sort_by_value(keys);
  return keys;
}

/// Bins by what they have, the lightest on top. Bins that are full leave.
class LightestBin {
 public:
  explicit LightestBin(const std::vector<double>& sums) : keys_(sums.size()) {
    for (size_t bin = 0; bin < sums.size(); ++bin) keys_[bin] = lightest_first_key(sums[bin], bin);
    std::sort(keys_.begin(), keys_.end());
  }

  size_t top() const { return item_of(keys_.front()); }
  void set_top(double sum) { sink(lightest_first_key(sum, top())); }
  void remove_top() {
    const uint64_t last = keys_.back();
    keys_.pop_back();
    if (!keys_.empty()) sink(last);
  }

 private:
  /// Puts a key in the place of the top one: half the work of taking out and putting in.
  void sink(uint64_t key) {
    size_t place = 0;
    for (size_t child = 1; child < keys_.size(); child = 2 * place + 1) {
      if (child + 1 < keys_.size() && keys_[child + 1] < keys_[child]) ++child;
      if (key <= keys_[child]) break;
      keys_[place] = keys_[child];
      place = child;
    }
    keys_[place] = key;
  }

  Keys keys_;
};

size_t heaviest(const std::vector<double>& sums) {
  return static_cast<size_t>(std::max_element(sums.begin(), sums.end()) - sums.begin());
}

/// One exchange between two bins of a round deal.
struct Exchange {
  size_t round = 0, other_round = 0, other_bin = 0;
  double gain = 0;  ///< by which the larger of the two sums falls
};

class RoundImprover {
 public:
  RoundImprover(std::span<const double> values, double growth_weight, RoundDeal& deal)
      : values_(values),
        growth_weight_(growth_weight),
        deal_(deal),
        bins_(static_cast<size_t>(deal.bins)),
        rounds_(static_cast<size_t>(deal.rounds())) {}

  void run() {
    for (int done = 0; done < kMostExchanges; ++done) {
      bin_ = heaviest(deal_.sums);
      Exchange best = best_within_rounds();
      if (best.gain <= negligible()) best = best_across_rounds();
      if (best.gain <= negligible()) return;
      apply(best);
    }
  }

 private:
  double negligible() const { return kNegligible * deal_.sums[bin_]; }
  int32_t& item(size_t round, size_t bin) { return deal_.item_of[round * bins_ + bin]; }
  double value(size_t round, size_t bin) const {
    return values_[static_cast<size_t>(deal_.item_of[round * bins_ + bin])];
  }
  /// Of the larger sum when a bin that has `most` hands `moved` to one that has `less`.
  static double gain_of(double most, double less, double moved) { return most - std::max(most - moved, less + moved); }

  Exchange best_within_rounds() {
    Exchange best;
    const double most = deal_.sums[bin_];
    for (size_t other = 0; other < bins_; ++other) {
      if (deal_.sums[other] + best.gain >= most) continue;
      if ((trials_ += static_cast<int64_t>(rounds_)) > kMostTrials) return best;
      for (size_t round = 0; round < rounds_; ++round) {
        const double gain = gain_of(most, deal_.sums[other], value(round, bin_) - value(round, other));
        if (gain > best.gain) best = {round, round, other, gain};
      }
    }
    return best;
  }

  Exchange best_across_rounds() {
    Exchange best;
    double best_net = negligible();
    const double most = deal_.sums[bin_];
    for (size_t other = 0; other < bins_; ++other) {
      if (deal_.sums[other] >= most) continue;
      for (size_t round = 0; round < rounds_; ++round) {
        if ((trials_ += static_cast<int64_t>(rounds_)) > kMostTrials) return best;
        for (size_t other_round = 0; other_round < rounds_; ++other_round) {
          const double moved = value(round, bin_) - value(other_round, other);
          const double gain = gain_of(most, deal_.sums[other], moved);
          if (round == other_round || gain <= best_net) continue;
          const double net = gain - weighted_growth(round, other_round, other);
          if (net <= best_net) continue;
          best_net = net;
          best = {round, other_round, other, gain};
        }
      }
    }
    return best;
  }

  /// By how much the largest items of two rounds grow in sum.
  double weighted_growth(size_t round, size_t other_round, size_t other) {
    if (growth_weight_ == 0) return 0;
    trials_ += static_cast<int64_t>(2 * bins_);
    double before = 0, after = 0, other_before = 0, other_after = 0;
    for (size_t bin = 0; bin < bins_; ++bin) {
      before = std::max(before, value(round, bin));
      other_before = std::max(other_before, value(other_round, bin));
      after = std::max(after, bin == bin_ ? value(other_round, other) : value(round, bin));
      other_after = std::max(other_after, bin == other ? value(round, bin_) : value(other_round, bin));
    }
    return growth_weight_ * (after + other_after - before - other_before);
  }

  void apply(const Exchange& e) {
    const double moved = value(e.round, bin_) - value(e.other_round, e.other_bin);
    deal_.sums[bin_] -= moved;
    deal_.sums[e.other_bin] += moved;
    std::swap(item(e.round, bin_), item(e.other_round, e.other_bin));
  }

  std::span<const double> values_;
  double growth_weight_;
  RoundDeal& deal_;
  size_t bins_, rounds_;
  size_t bin_ = 0;  ///< the heaviest
  int64_t trials_ = 0;
};

/// Moves or exchanges items between the heaviest bin and the lightest while that helps.
void even_out_bins(std::span<const double> values, std::vector<double>& sums, std::vector<int32_t>& bin_of) {
  int64_t trials = 0;
  for (int done = 0; done < kMostExchanges; ++done) {
    const size_t from = heaviest(sums);
    const auto to = static_cast<size_t>(std::min_element(sums.begin(), sums.end()) - sums.begin());
    const double gap = sums[from] - sums[to];
    double best_gain = kNegligible * sums[from];
    if (gap / 2 <= best_gain) return;  // no pair gains more than that
    std::vector<int32_t> mine, theirs;
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] <= 0) continue;
      if (bin_of[i] == static_cast<int32_t>(from)) mine.push_back(static_cast<int32_t>(i));
      if (bin_of[i] == static_cast<int32_t>(to)) theirs.push_back(static_cast<int32_t>(i));
    }
    theirs.push_back(-1);  // nothing in return
    int32_t given = -1, returned = -1;
    for (const int32_t a : mine) {
      if ((trials += std::ssize(theirs)) > kMostPairs) break;
      for (const int32_t b : theirs) {
        const double moved = values[static_cast<size_t>(a)] - (b < 0 ? 0 : values[static_cast<size_t>(b)]);
        const double gain = std::min(moved, gap - moved);
        if (gain <= best_gain) continue;
        best_gain = gain;
        given = a;
        returned = b;
      }
    }
    if (given < 0) return;
    const double moved =
        values[static_cast<size_t>(given)] - (returned < 0 ? 0 : values[static_cast<size_t>(returned)]);
    sums[from] -= moved;
    sums[to] += moved;
    bin_of[static_cast<size_t>(given)] = static_cast<int32_t>(to);
    if (returned >= 0) bin_of[static_cast<size_t>(returned)] = static_cast<int32_t>(from);
  }
}

}  // namespace

RoundDeal deal_in_rounds(std::span<const double> values, int64_t bins) {
  const auto width = static_cast<size_t>(bins);
  WEFT_CHECK(bins > 0 && values.size() % width == 0, "{} items for {} bins", values.size(), bins);
  const Keys heaviest = heaviest_first(values);
  RoundDeal deal{.bins = bins, .item_of = std::vector<int32_t>(values.size()), .sums = std::vector<double>(width, 0)};
  Keys lightest(width);
  for (size_t first = 0; first < values.size(); first += width) {
    for (size_t bin = 0; bin < width; ++bin) lightest[bin] = lightest_first_key(deal.sums[bin], bin);
    sort_by_value(lightest);
    for (size_t i = 0; i < width; ++i) {
      const size_t bin = item_of(lightest[i]), item = item_of(heaviest[first + i]);
      deal.item_of[first + bin] = static_cast<int32_t>(item);
      deal.sums[bin] += values[item];
    }
  }
  return deal;
}

RoundDeal deal_to_even_sums(std::span<const double> values, int64_t bins) {
  const auto width = static_cast<size_t>(bins);
  WEFT_CHECK(bins > 0 && values.size() % width == 0, "{} items for {} bins", values.size(), bins);
  const size_t rounds = values.size() / width;
  RoundDeal deal{.bins = bins, .item_of = std::vector<int32_t>(values.size()), .sums = std::vector<double>(width, 0)};
  std::vector<size_t> counts(width, 0);
  LightestBin lightest(deal.sums);
  for (const uint64_t key : heaviest_first(values)) {
    const size_t bin = lightest.top(), item = item_of(key);
    deal.item_of[counts[bin] * width + bin] = static_cast<int32_t>(item);
    deal.sums[bin] += values[item];
    if (++counts[bin] == rounds) {
      lightest.remove_top();
    } else {
      lightest.set_top(deal.sums[bin]);
    }
  }
  return deal;
}

void even_out(std::span<const double> values, double growth_weight, RoundDeal& deal) {
  RoundImprover(values, growth_weight, deal).run();
}

void sort_rounds(std::span<const double> values, RoundDeal& deal) {
  const auto width = static_cast<size_t>(deal.bins), rounds = static_cast<size_t>(deal.rounds());
  std::vector<int32_t> own(rounds);
  for (size_t bin = 0; bin < width; ++bin) {
    for (size_t round = 0; round < rounds; ++round) own[round] = deal.item_of[round * width + bin];
    std::stable_sort(own.begin(), own.end(), [&](int32_t a, int32_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    });
    for (size_t round = 0; round < rounds; ++round) deal.item_of[round * width + bin] = own[round];
  }
}

std::vector<int32_t> deal_longest_first(std::span<const double> values, int64_t bins) {
  const auto width = static_cast<size_t>(bins);
  std::vector<int32_t> bin_of(values.size());
  std::vector<double> sums(width, 0);
  const Keys heaviest = heaviest_first(values);
  size_t next = 0;
  LightestBin lightest(sums);
  for (; next < values.size(); ++next) {
    const size_t item = item_of(heaviest[next]), bin = lightest.top();
    if (values[item] <= 0) break;
    bin_of[item] = static_cast<int32_t>(bin);
    lightest.set_top(sums[bin] += values[item]);
  }
  // With at most one item a bin there is nothing to improve.
  if (next > width) even_out_bins(values, sums, bin_of);
  if (next == values.size()) return bin_of;
  std::vector<double> counts(width, 0);
  for (size_t i = 0; i < next; ++i) counts[static_cast<size_t>(bin_of[item_of(heaviest[i])])] += 1;
  LightestBin emptiest(counts);
  for (; next < values.size(); ++next) {
    const size_t bin = emptiest.top();
    bin_of[item_of(heaviest[next])] = static_cast<int32_t>(bin);
    emptiest.set_top(counts[bin] += 1);
  }
  return bin_of;
}

}  // namespace weft
