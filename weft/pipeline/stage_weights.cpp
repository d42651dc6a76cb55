#include "weft/pipeline/stage_weights.h"

#include <algorithm>
#include <map>

#include "weft/base/check.h"

namespace weft {

StageWeights::StageWeights(const std::vector<StageBlock>& blocks, const std::vector<StageOptimizer*>& optimizers,
                           Options options)
    : blocks_(blocks), options_(std::move(options)) {
  size_t num_parameters = 0, num_optimized = 0;
  for (const StageBlock& block : blocks) num_parameters += block.parameters.size();
  for (StageOptimizer* optimizer : optimizers) {
    parts_.push_back(make_part(*optimizer));
    num_optimized += optimizer->parameters().size();
  }
  WEFT_CHECK(num_parameters == num_optimized, "blocks have {} parameters, their optimizers {}", num_parameters,
             num_optimized);
  hooks_.before_forward = [this](size_t block) {
    gather(block);
    if (block + 1 < blocks_.size()) start_gather(block + 1);
  };
  hooks_.after_forward = [this](size_t block) { release(block); };
  hooks_.before_backward = [this](size_t block) { reach(block); };
}

StageWeights::Part StageWeights::make_part(StageOptimizer& optimizer) const {
  Part part{.optimizer = &optimizer};
  std::map<const Parameter*, int64_t> kind_of;
  for (const StageParameter& p : optimizer.parameters()) kind_of[p.parameter.get()] = p.kind;
  for (const StageBlock& block : blocks_) {
    std::vector<int64_t>& kinds = part.kinds.emplace_back();
    std::vector<Parameter*>& trained = part.trained.emplace_back();
    for (const ParameterPtr& p : block.parameters) {
      const auto found = kind_of.find(p.get());
      if (found == kind_of.end()) continue;
      kinds.push_back(found->second);
      if (p->is_trainable()) trained.push_back(p.get());
    }
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  }
  for (size_t block = 0; block < blocks_.size(); ++block) {
    if (!blocks_[block].borrowed) continue;
    const std::vector<int64_t>& others = part.kinds[*blocks_[block].borrowed];
    part.kinds[block].insert(part.kinds[block].end(), others.begin(), others.end());
  }
  return part;
}

void StageWeights::gather(size_t block) {
  // All of them on their way before the first is waited for.
  start_gather(block);
  for (Part& part : parts_) {
    if (part.optimizer->zero() < 3) continue;
    for (const int64_t kind : part.kinds[block]) part.optimizer->gather_values(kind);
  }
}

void StageWeights::start_gather(size_t block) {
  for (Part& part : parts_) {
    if (part.optimizer->zero() < 3) continue;
    for (const int64_t kind : part.kinds[block]) part.optimizer->start_gather_values(kind);
  }
}

void StageWeights::release(size_t block) {
  for (Part& part : parts_) {
    if (part.optimizer->zero() < 3) continue;
    for (const int64_t kind : part.kinds[block]) part.optimizer->release_values(kind);
  }
}

void StageWeights::begin_backward(WeightGradients* deferred) {
  deferred_ = deferred;
  backward_at_ = blocks_.size();
}

void StageWeights::end_backward() {
  reach(0);
  if (!blocks_.empty()) leave(0);
  deferred_ = nullptr;
}

void StageWeights::reach(size_t block) {
  WEFT_CHECK(block <= backward_at_, "a backward comes to block {} after block {}", block, backward_at_);
  while (backward_at_ > block) {
    if (backward_at_ < blocks_.size()) leave(backward_at_);
    enter(--backward_at_);
  }
}

void StageWeights::enter(size_t block) {
  if (!blocks_[block].has_backward) return;
  gather(block);
  if (block > 0 && blocks_[block - 1].has_backward) start_gather(block - 1);
  if (deferred_ == nullptr) return expect(block);
  // What is queued from now on is this block's.
  deferred_->add([this, block] { expect(block); });
}

void StageWeights::leave(size_t block) {
  if (!blocks_[block].has_backward) return;
  if (deferred_ != nullptr) {
    deferred_->add([this, block] { complete_from(block); });
  } else {
    complete_from(block);
  }
  release(block);
}

void StageWeights::expect(size_t block) {
  for (Part& part : parts_) {
    for (Parameter* parameter : part.trained[block]) part.optimizer->expect_gradient(*parameter);
  }
}

void StageWeights::begin_gradients(bool is_last) {
  for (Part& part : parts_) {
    part.complete_from = blocks_.size();
    part.hands_on = part.optimizer->zero() >= 2 || (is_last && options_.overlap);
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
    if (!part.has_handed_on && part.optimizer->zero() < 2) {
      part.complete_from = blocks_.size();
      part.hands_on = true;
      complete_from(part, 0);
    }
    part.has_handed_on = false;
    part.optimizer->start_reduce();
  }
}

}  // namespace weft
