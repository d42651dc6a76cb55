#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/spec/model.h"

namespace weft {

/// A module's blocks in order: 0 is the entry, then come the layers, the exit is last.
int64_t num_blocks(const Module& module);
const Block& block_at(const Module& module, int64_t place);

/// Whether it is known what weight files of the model's family call its weights.
bool has_weight_names(const Model& model);

/// What weight files call the weights of a block: by weight, in the order of its operators (a matrix before its bias),
/// the names that lie together in it. A head that is tied has none. The family must have names.
std::vector<std::vector<std::string>> weight_names(const Model& model, const Module& module, int64_t place);

}  // namespace weft
