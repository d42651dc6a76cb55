#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

/// What a program's rows are counted in.
struct ProgramRows {
  size_t sample_dim = 0;
  int64_t rows_per_sample = 1;  ///< of what goes from layer to layer
};

/// A tensor that comes with the data, as a program names it.
struct NamedInput {
  std::string name;
  std::vector<int64_t> shape;          ///< of a sample
  std::vector<std::string> dims;       ///< what the program calls them
  std::optional<int64_t> num_entries;  ///< it has whole numbers below this; nothing: any numbers
  bool may_be_negative = false;        ///< targets, where a row has none

  int64_t num_elements() const;
};

/// What training a program takes besides its blocks.
struct ProgramNumbers {
  ProgramRows rows;
  int64_t most_samples = 1;        ///< that run at once: with more, a tensor would have more elements than a layout may
  bool marks_layers = false;       ///< else it is one block
  std::vector<NamedInput> inputs;  ///< in the order of the program
  std::optional<size_t> targets;   ///< the input whose numbers from 0 on are counted; nothing: every sample has as many
  int64_t targets_per_sample = 0;  ///< where none is: elements that the loss is a sum of
};

}  // namespace weft
