#include "weft/optim/stage_optimizer.h"

#include <cmath>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "weft/base/check.h"
#include "weft/base/hash.h"
#include "weft/meaning/zero_rules.h"
#include "weft/optim/squared_norm.h"
#include "weft/tensor/flat_memory.h"

namespace weft {
namespace {

constexpr double kMegabyte = 1e6;

std::shared_ptr<const ParameterBuckets> make_buckets(std::vector<StageParameter> parameters, const Group& group,
                                                     const OptimizerOptions& options) {
  WEFT_CHECK(options.zero >= 0 && options.zero <= 3, "ZeRO {}", options.zero);
  const BucketOptions layout{.max_bytes = static_cast<int64_t>(options.buckets_mb * kMegabyte),
                             .gradient_type = options.reduce_type,
                             .num_shards = group.size(),
                             .alignment = options.alignment,
                             .has_decay = options.has_decay};
  return std::make_shared<const ParameterBuckets>(
      std::move(parameters), layout, zero_rules(options.zero, options.keep_gathered).divides_states, group.rank());
}

ZeroRules rules_of(const OptimizerOptions& options) {
  return zero_rules(options.zero, options.keep_gathered);
}

ValueOptions value_options(const OptimizerOptions& options) {
  return {.value_type = options.compute_type,
          .master_type = options.master_type,
          .has_shards = rules_of(options).divides_states,
          .releases = rules_of(options).releases_values,
          .overlap = options.overlap};
}

GradientOptions gradient_options(const OptimizerOptions& options) {
  using Way = GradientOptions::Way;
  const ZeroRules rules = rules_of(options);
  return {.way = rules.scatters_gradients ? Way::kScatterEveryMicrobatch
                 : rules.divides_states   ? Way::kReduceScatter
                                          : Way::kAllReduce,
          .type = options.reduce_type,
          .sum_type = options.master_type,
          .overlap = options.overlap};
}

/// A part of all three.
AdamWState part_of(const AdamWState& state, const ElementRange& range) {
  const auto part = [&](const at::Tensor& x) { return x.defined() ? range_view(x, range) : x; };
  return {.master = part(state.master), .moment1 = part(state.moment1), .moment2 = part(state.moment2)};
}

uint64_t draw_key(int64_t step, size_t bucket) {
  Hasher hash;
  hash.add(step);
  hash.add(bucket);
  return hash.value();
}

void copy_state(const at::Tensor& from, const at::Tensor& to, size_t bucket) {
  WEFT_CHECK(from.defined() && from.sizes() == to.sizes(), "a state of bucket {} has another size than its {} elements",
             bucket, to.numel());
  to.copy_(from);
}

}  // namespace

StageOptimizer::StageOptimizer(std::vector<StageParameter> parameters, Group data_parallel, OptimizerOptions options)
    : options_(std::move(options)),
      group_(std::move(data_parallel)),
      buckets_(make_buckets(std::move(parameters), group_, options_)),
      values_(buckets_, group_, value_options(options_)),
      gradients_(buckets_, group_, gradient_options(options_)),
      late_(buckets_->parameters().size()) {
  for (const WeightRule& rule : options_.weight_rules)
    WEFT_CHECK(!rule.learning_rate || options_.peak_learning_rate > 0, "a learning rate of {} beside a peak of {}",
               *rule.learning_rate, options_.peak_learning_rate);
  for (size_t b = 0; b < buckets_->size(); ++b) {
    AdamWState& state = states_.emplace_back();
    state.master = values_.master(b);
    if (!(*buckets_)[b].is_trained) continue;
    state.moment1 = at::zeros_like(state.master);
    state.moment2 = at::zeros_like(state.master);
  }
}

std::vector<WeightedRange> StageOptimizer::weighted_ranges(
    const BucketLayout& layout, const std::function<double(const Parameter&, const WeightPiece&)>& weight) const {
  SquareRanges joined;
  for (const BucketSlot& slot : layout.slots) {
    const Parameter& parameter = buckets_->parameter(slot);
    int64_t begin = slot.elements.begin;
    for (const WeightPiece& piece : parameter.spec.pieces) {
      joined.add({begin, begin + piece.num_elements()}, weight(parameter, piece));
      begin += piece.num_elements();
    }
  }
  return joined.ranges();
}

at::Tensor StageOptimizer::local_squared_norm(const std::function<double(const Parameter&, const WeightPiece&)>& weight,
                                              bool is_exact) const {
  const at::NoGradGuard no_graph;
  at::Tensor sum = at::zeros({}, at::TensorOptions().device(buckets_->device()).dtype(at::kDouble));
  if (!counts_norm()) return sum;
  std::vector<WeightedElements> parts;
  for (size_t b = 0; b < buckets_->size(); ++b) {
    const BucketLayout& layout = (*buckets_)[b];
    if (!layout.is_trained) continue;
    const ElementRange owned = buckets_->owned(b);
    const at::Tensor gradient = gradients_.reduced(b);
    for (const WeightedRange& part : weighted_ranges(layout, weight)) {
      const ElementRange mine = common(part.elements, owned);
      if (mine.size() == 0) continue;
      const at::Tensor elements = range_view(gradient, shifted(mine, -owned.begin));
      if (is_exact)
        sum.add_(squared_norm_in_double(elements), part.factor);
      else
        parts.push_back({elements, part.factor});
    }
  }
  return is_exact ? sum : weighted_squares(parts, buckets_->device());
}

std::vector<StageOptimizer::Stretch> StageOptimizer::stretches_of(size_t bucket) const {
  const ElementRange owned = buckets_->owned(bucket);
  std::vector<Stretch> stretches;
  const auto add = [&](const Stretch& next) {
    const bool goes_on =
        !stretches.empty() && stretches.back().updates == next.updates && stretches.back().manner == next.manner;
    if (goes_on) {
      stretches.back().elements.end = next.elements.end;
    } else {
      stretches.push_back(next);
    }
  };
  const BucketLayout& layout = (*buckets_)[bucket];
  for (const BucketSlot& slot : layout.slots) {
    const int64_t updates = updates_of(slot.parameter);
    const std::vector<WeightPiece>& pieces = buckets_->parameter(slot).spec.pieces;
    if (options_.weight_rules.empty()) {
      add({slot.elements, updates, manner_of(layout, pieces.front())});
      continue;
    }
    int64_t begin = slot.elements.begin;
    for (const WeightPiece& piece : pieces) {
      add({{begin, begin + piece.num_elements()}, updates, manner_of(layout, piece)});
      begin += piece.num_elements();
    }
  }
  // Usually all are updated alike. Padding is zero and stays so, whoever updates it.
  if (stretches.size() == 1) {
    stretches.front().elements = owned;
    return stretches;
  }
  for (Stretch& stretch : stretches) stretch.elements = common(stretch.elements, owned);
  std::erase_if(stretches, [](const Stretch& stretch) { return stretch.elements.size() == 0; });
  return stretches;
}

StageOptimizer::Manner StageOptimizer::manner_of(const BucketLayout& layout, const WeightPiece& piece) const {
  Manner manner{.weight_decay = layout.has_decay ? options_.adamw.weight_decay : 0};
  const WeightSettings own = settings_of(options_.weight_rules, piece.name);
  if (own.learning_rate) manner.rate_factor = *own.learning_rate / options_.peak_learning_rate;
  if (own.weight_decay) manner.weight_decay = *own.weight_decay;
  return manner;
}

void StageOptimizer::start_update(double learning_rate, double gradient_scale) {
  const at::NoGradGuard no_graph;
  ++step_;
  for (size_t b = 0; b < buckets_->size(); ++b) {
    const BucketLayout& layout = (*buckets_)[b];
    if (!layout.is_trained) continue;
    const at::Tensor gradient = gradients_.reduced(b), values = values_.owned_values(b);
    AdamWSettings settings = options_.adamw;
    const int64_t begin = buckets_->owned(b).begin;
    for (const Stretch& stretch : stretches_of(b)) {
      const ElementRange range = shifted(stretch.elements, -begin);
      settings.weight_decay = stretch.manner.weight_decay;
      update_adamw(part_of(states_[b], range), range_view(gradient, range),
                   values.defined() ? range_view(values, range) : values, settings,
                   {.learning_rate = learning_rate * stretch.manner.rate_factor,
                    .number = stretch.updates,
                    .gradient_scale = gradient_scale,
                    .key = draw_key(step_, b),
                    .first_element = stretch.elements.begin});
    }
    values_.publish(b);
  }
}

void StageOptimizer::update(double learning_rate, double gradient_scale) {
  start_update(learning_rate, gradient_scale);
  values_.finish_arrivals();
}

std::vector<OwnedPart> StageOptimizer::owned_parts() const {
  std::vector<OwnedPart> parts(parameters().size());
  for (size_t b = 0; b < buckets_->size(); ++b) {
    const ElementRange owned = buckets_->owned(b);
    for (const BucketSlot& slot : (*buckets_)[b].slots) {
      const ElementRange mine = common(slot.elements, owned);
      if (mine.size() == 0) continue;
      parts[slot.parameter] = {.parameter = parameters()[slot.parameter].parameter,
                               .index = slot.parameter,
                               .elements = shifted(mine, -slot.elements.begin),
                               .state = part_of(states_[b], shifted(mine, -owned.begin))};
    }
  }
  std::erase_if(parts, [](const OwnedPart& part) { return !part.parameter; });
  return parts;
}

OptimizerState StageOptimizer::state() const {
  OptimizerState state{.step = step_, .late = late_, .buckets = {}};
  for (size_t b = 0; b < buckets_->size(); ++b)
    if ((*buckets_)[b].is_trained)
      state.buckets.push_back({.bucket = b, .owned = buckets_->owned(b), .state = states_[b]});
  return state;
}

void StageOptimizer::restore(int64_t step, std::vector<int64_t> late) {
  WEFT_CHECK(late.empty() || late.size() == parameters().size(), "{} parameters with the ages of {}",
             parameters().size(), late.size());
  step_ = step;
  late.resize(parameters().size());
  late_ = std::move(late);
  for (size_t b = 0; b < buckets_->size(); ++b) values_.publish_masters(b);
  values_.finish_arrivals();
}

void StageOptimizer::load(const OptimizerState& state) {
  const at::NoGradGuard no_graph;
  const OptimizerState own = this->state();
  WEFT_CHECK(state.buckets.size() == own.buckets.size(), "a state of {} buckets for an optimizer with {}",
             state.buckets.size(), own.buckets.size());
  for (size_t i = 0; i < own.buckets.size(); ++i) {
    const BucketState &from = state.buckets[i], &to = own.buckets[i];
    WEFT_CHECK(from.bucket == to.bucket && from.owned == to.owned,
               "a state of bucket {}, elements {} to {}, for bucket {}, elements {} to {}", from.bucket,
               from.owned.begin, from.owned.end, to.bucket, to.owned.begin, to.owned.end);
    copy_state(from.state.master, to.state.master, to.bucket);
    copy_state(from.state.moment1, to.state.moment1, to.bucket);
    copy_state(from.state.moment2, to.state.moment2, to.bucket);
  }
  restore(state.step, state.late);
}

HeldElements StageOptimizer::peak_elements() const {
  HeldElements peak = held_elements();
  peak.values = values_.peak_elements();
  peak.gradients = gradients_.peak_elements();
  return peak;
}

HeldElements StageOptimizer::held_elements() const {
  HeldElements held{
      .values = values_.held_elements(), .gradients = gradients_.held_elements(), .states = values_.held_masters()};
  for (const AdamWState& state : states_) held.states += num_held(state.moment1) + num_held(state.moment2);
  return held;
}

}  // namespace weft
