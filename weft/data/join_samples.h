#pragma once

#include <vector>

#include "weft/data/sample_source.h"

namespace weft {

/// One sample with a segment for each of these, in their order. `mel_bins` are bands of features.
Sample join_samples(std::vector<Sample> parts, int64_t mel_bins);

/// The content of each of several samples that is wanted where this is wanted of them joined. Of the samples only
/// their numbers of media are read.
std::vector<SampleContent> split_content(const SampleContent& wanted, const std::vector<const Sample*>& parts);

}  // namespace weft
