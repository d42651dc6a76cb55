#include "weft/data/once_each.h"

#include <algorithm>

namespace weft {

Result<Sample> OnceEach::read(int64_t index, const SampleContent& wanted, std::vector<SkippedSample>& skipped) const {
  WEFT_TRY(Sample sample, samples_->read(index, wanted, skipped));
  const bool is_past = num_different() > 0 && index >= num_different();
  if (is_past || sample.stands_in) std::fill(sample.targets.begin(), sample.targets.end(), kNoTarget);
  return sample;
}

}  // namespace weft
