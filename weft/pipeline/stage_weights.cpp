#include "weft/pipeline/stage_weights.h"

#include <algorithm>
#include <map>

#include "weft/base/check.h"

namespace weft {

StageWeights::StageWeights(const std::vector<StageBlock>& blocks, const std::vector<StageOptimizer*>& optimizers,
                           Options options)
    : blocks_(blocks), options_(std::move(options)), order_(weight_order(blocks)) {
  size_t num_parameters = 0, num_optimized = 0;
  for (const StageBlock& block : blocks) num_parameters += block.parameters.size();
  for (StageOptimizer* optimizer : optimizers) {
    parts_.push_back(make_part(*optimizer));
    num_optimized += optimizer->parameters().size();
  }
  WEFT_CHECK(num_parameters == num_optimized, "blocks have {} parameters, their optimizers {}", num_parameters,
             num_optimized);
  const auto follow = [this](WeightStep step, size_t block) { take(step, block); };
  hooks_.before_forward = [this, follow](size_t block) { order_.before_forward(block, follow); };
  hooks_.after_forward = [this, follow](size_t block) { order_.after_forward(block, follow); };
  hooks_.before_backward = [this, follow](size_t block) {
    WEFT_CHECK(block <= order_.backward_at(), "a backward comes to block {} after block {}", block,
               order_.backward_at());
    order_.reach(block, follow);
  };
}

StageWeights::Part StageWeights::make_part(StageOptimizer& optimizer) const {
  Part part{.optimizer = &optimizer};
  std::map<const Parameter*, int64_t> bundle_of;
  for (const StageParameter& p : optimizer.parameters()) bundle_of[p.parameter.get()] = p.bundle;
  for (const StageBlock& block : blocks_) {
    std::vector<int64_t>& bundles = part.bundles.emplace_back();
    std::vector<Parameter*>& trained = part.trained.emplace_back();
    for (const ParameterPtr& p : block.parameters) {
      const auto found = bundle_of.find(p.get());
      if (found == bundle_of.end()) continue;
      bundles.push_back(found->second);
      if (p->is_trainable()) trained.push_back(p.get());
    }
    std::sort(bundles.begin(), bundles.end());
    bundles.erase(std::unique(bundles.begin(), bundles.end()), bundles.end());
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (!blocks_[block].borrowed) continue;
    const std::vector<int64_t>& others = part.bundles[*blocks_[block].borrowed];
    part.bundles[block].insert(part.bundles[block].end(), others.begin(), others.end());
  }
  return part;
}

void StageWeights::gather(size_t block) {
  // All of them on their way before the first is waited for.
  start_gather(block);
  for (Part& part : parts_) {
    if (!part.optimizer->rules().releases_values) continue;
    for (const int64_t bundle : part.bundles[block]) part.optimizer->gather_values(bundle);
  }
}

void StageWeights::start_gather(size_t block) {
  for (Part& part : parts_) {
    if (!part.optimizer->rules().releases_values) continue;
    for (const int64_t bundle : part.bundles[block]) part.optimizer->start_gather_values(bundle);
  }
}

void StageWeights::release(size_t block) {
  for (Part& part : parts_) {
    if (!part.optimizer->rules().releases_values) continue;
    for (const int64_t bundle : part.bundles[block]) part.optimizer->release_values(bundle);
  }
}

void StageWeights::begin_backward(WeightGradients* deferred) {
  deferred_ = deferred;
  order_.begin_backward();
}

void StageWeights::end_backward() {
  order_.end_backward([this](WeightStep step, size_t block) { take(step, block); });
  deferred_ = nullptr;
}

void StageWeights::take(WeightStep step, size_t block) {
  switch (step) {
    case WeightStep::kGather:
      return gather(block);
    case WeightStep::kStartGather:
      return start_gather(block);
    case WeightStep::kRelease:
      return release(block);
    case WeightStep::kExpect:
      expect(block, /*scattered=*/false);
      // What is queued from now on is this block's.
      return in_turn([this, block] { expect(block, /*scattered=*/true); });
    case WeightStep::kComplete:
      return in_turn([this, block] { complete_from(block); });
  }
}

void StageWeights::in_turn(std::function<void()> task) {
  if (deferred_ == nullptr) return task();
  deferred_->add(std::move(task));
}

void StageWeights::expect(size_t block, bool scattered) {
  for (Part& part : parts_) {
    if (part.scatters() != scattered) continue;
    for (Parameter* parameter : part.trained[block]) part.optimizer->expect_gradient(*parameter);
    // Gradients that stay have their place at once, so that what a tied head makes is not copied there later.
    if (scattered || !blocks_[block].borrowed) continue;
    for (Parameter* parameter : part.trained[*blocks_[block].borrowed]) part.optimizer->expect_gradient(*parameter);
  }
}

void StageWeights::begin_gradients(bool is_last) {
  for (Part& part : parts_) {
    part.complete_from = blocks_.size();
    part.hands_on = part.scatters() || (is_last && options_.overlap);
    part.has_handed_on = part.hands_on && is_last;
  }
}

void StageWeights::complete_from(size_t block) {
  for (Part& part : parts_) complete_from(part, block);
}

void StageWeights::complete_from(Part& part, size_t block) {
  if (!part.hands_on) return;
  while (part.complete_from > block) {
    --part.complete_from;
    options_.complete(*part.optimizer, part.complete_from);
    for (const Parameter* parameter : part.trained[part.complete_from]) part.optimizer->gradient_ready(*parameter);
  }
}

void StageWeights::end_gradients() {
  complete_from(0);
  for (Part& part : parts_) part.optimizer->microbatch_done();
}

void StageWeights::reduce() {
  for (Part& part : parts_) {
    if (!part.has_handed_on && !part.scatters()) {
      for (size_t block = 0; block < blocks_.size(); ++block)  // also those that no microbatch had data for
        for (Parameter* parameter : part.trained[block]) part.optimizer->expect_gradient(*parameter);
      part.complete_from = blocks_.size();
      part.hands_on = true;
      complete_from(part, 0);
    }
    part.has_handed_on = false;
    part.optimizer->start_reduce();
  }
}

}  // namespace weft
