#include "weft/pipeline/stage_weights.h"

#include <algorithm>
#include <map>

#include "weft/base/check.h"

namespace weft {

StageWeights::StageWeights(const std::vector<StageBlock>& blocks, StageOptimizer& optimizer, Options options)
    : blocks_(blocks), optimizer_(optimizer), options_(std::move(options)) {
  std::map<const Parameter*, int64_t> kind_of;
  for (const StageParameter& p : optimizer.parameters()) kind_of[p.parameter.get()] = p.kind;
  for (const StageBlock& block : blocks) {
    std::vector<int64_t>& kinds = kinds_.emplace_back();
    for (const ParameterPtr& p : block.parameters) kinds.push_back(kind_of.at(p.get()));
    std::sort(kinds.begin(), kinds.end());
    kinds.erase(std::unique(kinds.begin(), kinds.end()), kinds.end());
  }
  for (size_t block = 0; block < blocks.size(); ++block) {
    if (!blocks[block].borrowed) continue;
    const std::vector<int64_t>& others = kinds_[*blocks[block].borrowed];
    kinds_[block].insert(kinds_[block].end(), others.begin(), others.end());
  }
  hooks_.before_forward = [this](size_t block) {
    gather(block);
    if (block + 1 < blocks_.size()) start_gather(block + 1);
  };
  hooks_.after_forward = [this](size_t block) { release(block); };
  hooks_.before_backward = [this](size_t block) { reach(block); };
}

void StageWeights::gather(size_t block) {
  if (options_.zero < 3) return;
  for (const int64_t kind : kinds_[block]) optimizer_.gather_values(kind);
}

void StageWeights::start_gather(size_t block) {
  if (options_.zero < 3) return;
  for (const int64_t kind : kinds_[block]) optimizer_.start_gather_values(kind);
}

void StageWeights::release(size_t block) {
  if (options_.zero < 3) return;
  for (const int64_t kind : kinds_[block]) optimizer_.release_values(kind);
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
  for (const ParameterPtr& parameter : blocks_[block].parameters) {
    if (parameter->is_trainable()) optimizer_.expect_gradient(*parameter);
  }
}

void StageWeights::begin_gradients(bool is_last) {
  complete_from_ = blocks_.size();
  hands_on_ = options_.zero >= 2 || (is_last && options_.overlap);
  has_handed_on_ = hands_on_ && is_last;
}

void StageWeights::complete_from(size_t block) {
  if (!hands_on_) return;
  while (complete_from_ > block) {
    --complete_from_;
    options_.complete(complete_from_);
    for (const ParameterPtr& parameter : blocks_[complete_from_].parameters) {
      if (parameter->is_trainable()) optimizer_.gradient_ready(*parameter);
    }
  }
}

void StageWeights::end_gradients() {
  complete_from(0);
  optimizer_.microbatch_done();
}

void StageWeights::reduce() {
  if (!has_handed_on_ && options_.zero < 2) {
    begin_gradients(/*is_last=*/true);
    hands_on_ = true;
    complete_from(0);
  }
  has_handed_on_ = false;
  optimizer_.start_reduce();
}

}  // namespace weft
