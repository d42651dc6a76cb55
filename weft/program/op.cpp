#include "weft/program/op.h"

#include <array>

#include "weft/base/check.h"
#include "weft/program/rule.h"

namespace weft {
namespace {

// Counted in whole numbers, which are exact, or in doubles, which do not overflow.
template <typename Number>
Number parameters_of(const Matmul& m) {
  if (m.is_tied) return 0;
  return Number(m.experts) * (Number(m.in) * Number(m.out) + Number(m.bias_elements));
}
template <typename Number>
Number parameters_of(const Attention&) {
  return 0;
}
template <typename Number>
Number parameters_of(const Norm& n) {
  return Number(n.has_bias ? 2 : 1) * Number(n.width);
}
template <typename Number>
Number parameters_of(const Pointwise& p) {
  return Number(p.scales);
}
template <typename Number>
Number parameters_of(const Lookup& l) {
  return Number(l.entries) * Number(l.width);
}
template <typename Number>
Number parameters_of(const CrossEntropy&) {
  return 0;
}

constexpr size_t kNumFeatures = 4;
static_assert(static_cast<size_t>(Features::kVocabulary) + 1 == kNumFeatures);

bool is_cut(Features features) {
  return features != Features::kWidth;
}

TensorSplit find_split(Features in, Features out) {
  if (!is_cut(in) && !is_cut(out)) return TensorSplit::kWhole;
  // What keeps its features maps them; all else sums over those that it reads.
  const Rule rule = *parse_rule(in == out ? "r i -> r i" : "r i, o i -> r o");
  const ChoiceStates states = states_of(rule, Choice::cut(*rule.find(is_cut(out) && in != out ? "o" : "i")));
  if (!states.operands[0].is_shard()) return TensorSplit::kColumn;
  WEFT_CHECK(states.result.is_shard() || states.result.is_partial(), "a cut leaves {}", states.result.text());
  return states.result.is_partial() ? TensorSplit::kRow : TensorSplit::kInside;
}

}  // namespace

TensorSplit split_between(Features in, Features out) {
  static const auto kSplits = [] {
    std::array<TensorSplit, kNumFeatures * kNumFeatures> splits{};
    for (size_t i = 0; i < splits.size(); ++i)
      splits[i] = find_split(static_cast<Features>(i / kNumFeatures), static_cast<Features>(i % kNumFeatures));
    return splits;
  }();
  return kSplits[static_cast<size_t>(in) * kNumFeatures + static_cast<size_t>(out)];
}

HeldWeights held_by(const Op& op) {
  if (op.held) return *op.held;
  HeldWeights held;
  if (is_divided_table(op)) held.weight = HeldCut{.dim = 0};
  return held;
}

bool has_weights(const Op& op) {
  return estimated_parameters(op) > 0;
}

int64_t num_parameters(const Op& op) {
  return std::visit([](const auto& shape) { return parameters_of<int64_t>(shape); }, op.shape);
}

double estimated_parameters(const Op& op) {
  return std::visit([](const auto& shape) { return parameters_of<double>(shape); }, op.shape);
}

}  // namespace weft
