#pragma once

#include <memory>

#include "weft/data/sample_source.h"

namespace weft {

/// Samples of a source that ends, for who counts each of them once: those past its last, which fill a batch, and those
/// that stand in for a broken record have no targets.
class OnceEach : public SampleSource {
 public:
  explicit OnceEach(std::shared_ptr<SampleSource> samples) : samples_(std::move(samples)) {}

  Result<SampleLengths> lengths_of(int64_t index, std::vector<SkippedSample>& skipped) const override {
    return samples_->lengths_of(index, skipped);
  }
  Result<Sample> read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const override;
  void leave_out(const std::vector<SkippedSample>& skipped) override { samples_->leave_out(skipped); }
  int64_t num_different() const override { return samples_->num_different(); }
  bool is_synthetic() const override { return samples_->is_synthetic(); }

 private:
  std::shared_ptr<SampleSource> samples_;
};

}  // namespace weft
