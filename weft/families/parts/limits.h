#pragma once

#include "weft/base/fields.h"
#include "weft/program/module.h"

namespace weft {

// What a configuration may ask for: far above any real model. What sizes give together is asked of the model that was
// read (weft/spec/model_size.h).
inline constexpr IntegerRange kLayerRange{1, kMostLayers};
inline constexpr IntegerRange kLayerIndexRange{0, 10'000};  // may name layers that a shortened model lacks
inline constexpr IntegerRange kWidthRange{1, 1 << 18};
inline constexpr IntegerRange kIntermediateRange{1, 1 << 21};
inline constexpr IntegerRange kHeadRange{1, 1 << 14};
inline constexpr IntegerRange kHeadDimRange{2, 1 << 14};
inline constexpr IntegerRange kVocabularyRange{1, 1 << 26};
inline constexpr IntegerRange kExpertRange{1, 1 << 14};
inline constexpr IntegerRange kWindowRange{1, 1 << 30};
inline constexpr IntegerRange kPatchRange{1, 1 << 10};
inline constexpr IntegerRange kChannelRange{1, 1 << 10};
inline constexpr IntegerRange kMergeRange{1, 64};

}  // namespace weft
