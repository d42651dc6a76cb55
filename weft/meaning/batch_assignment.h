#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "weft/meaning/batch_order.h"
#include "weft/spec/model.h"

namespace weft {

/// How a module beside the pipeline takes samples in.
struct EncoderShape {
  int64_t data_parallel = 1;
  int64_t mbs_scale = 1;
  int64_t mbs_parts = 1;  ///< the scale is mbs_scale / mbs_parts

  /// Samples of a rank in a macro batch, where the llm's rank takes `mbs`.
  int64_t at_once(int64_t mbs) const { return mbs * mbs_scale / mbs_parts; }
};

/// What deals a step's samples out.
struct BatchShape {
  BatchOrder llm;
  std::map<ModuleKind, EncoderShape> encoders;  ///< those beside the pipeline
};

/// Which samples of a batch each data-parallel rank takes, in order.
struct BatchAssignment {
  using Shares = std::vector<std::vector<std::vector<int64_t>>>;
  Shares llm;                             ///< [data-parallel rank][microbatch]
  std::map<ModuleKind, Shares> encoders;  ///< [data-parallel rank of the encoder][macro batch]

  bool operator==(const BatchAssignment&) const = default;
};

/// Samples in the batch's order. The llm's microbatches have theirs as BatchOrder says; macro batch k of an encoder has
/// the next at_once samples a rank of the same order, so that microbatches are complete one after the other.
BatchAssignment assign_in_order(const BatchShape& shape);

}  // namespace weft
