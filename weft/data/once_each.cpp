#include "weft/data/once_each.h"

#include <algorithm>

namespace weft {

Result<Sample> OnceEach::read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const {
  const size_t before = skipped.size();
  WEFT_TRY(Sample sample, samples_->read(index, wanted, skipped));
  const bool is_past = num_different() > 0 && index >= num_different();
  if (is_past || skipped.size() > before) std::fill(sample.targets.begin(), sample.targets.end(), kNoTarget);
  return sample;
}

}  // namespace weft
