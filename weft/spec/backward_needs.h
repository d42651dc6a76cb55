#pragma once

#include "weft/spec/model.h"
#include "weft/spec/workload.h"

namespace weft {

/// Which gradients a module's backward makes.
struct BackwardNeeds {
  bool weights = true;
  bool inputs = true;  ///< of all blocks but the entry, whose input is data or passes through it

  bool runs() const { return weights || inputs; }
  bool of_inputs(bool is_entry) const { return inputs && !is_entry; }
};

/// The backward goes back as far as something is trained: through a frozen llm, too, on its way to an encoder.
BackwardNeeds backward_needs(const Model& model, const Workload& workload, ModuleKind module);

}  // namespace weft
