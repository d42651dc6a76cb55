#pragma once

#include <string_view>
#include <vector>

#include "weft/program/module.h"

namespace weft {

/// What files call the weights of operators, by the operators' names.
struct NamedOp {
  std::string_view op;
  OpWeights weights;
};
using WeightTable = std::vector<NamedOp>;

/// Gives the operators of a module's blocks the names that a table has for them. All that have weights must have one.
void name_weights(Module& module, const WeightTable& table);
/// The same for one kind of block, whose names differ from those of the others.
void name_weights(Block& block, const WeightTable& table);

/// What weight files call the weights of a block: by weight, in the order of its operators (a matrix before its bias),
/// the names that lie together in it. A head that is tied has none.
std::vector<std::vector<std::string>> weight_names(const Module& module, int64_t place);

/// What stands before the names of a block's operators.
std::string path_of_block(const Module& module, int64_t place);

/// "mlp.experts.{}.down_proj" of an expert.
std::string numbered(const std::string& pattern, int64_t number);

}  // namespace weft
