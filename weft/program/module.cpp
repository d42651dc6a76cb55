#include "weft/program/module.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {

std::string_view name_of(ModuleKind kind) {
  switch (kind) {
    case ModuleKind::kVision:
      return "vision";
    case ModuleKind::kAudio:
      return "audio";
    case ModuleKind::kLlm:
      return "llm";
  }
  return "";
}

int64_t num_blocks(const Module& module) {
  return static_cast<int64_t>(module.layers.size()) + 2;
}

const Block& block_at(const Module& module, int64_t place) {
  if (place == 0) return module.entry;
  if (place + 1 == num_blocks(module)) return module.exit;
  return module.distinct_layers[module.layers[static_cast<size_t>(place) - 1]];
}

std::vector<int64_t> branch_layers(const Module& module) {
  std::vector<int64_t> layers;
  for (const Op& op : module.exit.ops) {
    if (op.branches_from >= 0) layers.push_back(op.branches_from);
  }
  return layers;
}

const Op* find_op(const Block& block, std::string_view name) {
  const auto found = std::find_if(block.ops.begin(), block.ops.end(), [&](const Op& op) { return op.name == name; });
  return found == block.ops.end() ? nullptr : &*found;
}

const Op& op_named(const Block& block, std::string_view name) {
  const Op* op = find_op(block, name);
  WEFT_CHECK(op != nullptr, "block {} has no operator {}", block.name, name);
  return *op;
}

int64_t num_parameters(const Block& block) {
  int64_t total = 0;
  for (const Op& op : block.ops) total += num_parameters(op);
  return total;
}

int64_t num_parameters(const Module& module) {
  int64_t total = num_parameters(module.entry) + num_parameters(module.exit);
  for (const size_t kind : module.layers) total += num_parameters(module.distinct_layers[kind]);
  return total;
}

double estimated_parameters(const Module& module) {
  const auto of_block = [](const Block& block) {
    double total = 0;
    for (const Op& op : block.ops) total += estimated_parameters(op);
    return total;
  };
  std::vector<double> of_layers;
  for (const Block& layer : module.distinct_layers) of_layers.push_back(of_block(layer));
  double total = of_block(module.entry) + of_block(module.exit);
  for (const size_t kind : module.layers) total += of_layers[kind];
  return total;
}

}  // namespace weft
