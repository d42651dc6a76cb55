#include "weft/program/name_weights.h"

#include <algorithm>
#include <map>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Names of one operator are one value for all blocks that have it.
using SharedNames = std::map<std::string_view, std::shared_ptr<const OpWeights>>;

SharedNames shared_names(const WeightTable& table) {
  SharedNames names;
  for (const NamedOp& named : table) names.emplace(named.op, std::make_shared<const OpWeights>(named.weights));
  return names;
}

void name_ops(Block& block, const SharedNames& names) {
  for (Op& op : block.ops) {
    const auto found = names.find(op.name);
    if (found != names.end()) op.weights = found->second;
    WEFT_CHECK(op.weights != nullptr || !has_weights(op), "the weights of {} in {} have no names", op.name, block.name);
  }
}

/// Lists the names of one operator's weights.
class OpLister {
 public:
  OpLister(const OpWeights& weights, std::string path, std::vector<std::vector<std::string>>& listed)
      : weights_(weights), path_(std::move(path)), listed_(listed) {}

  void operator()(const Matmul& m) {
    if (m.is_tied) return;
    add(weights_.names, ".weight", m.experts);
    if (m.bias_elements > 0) add(bias_names(), ".bias", m.experts);
  }
  void operator()(const Lookup&) { add(weights_.names, ".weight", 1); }
  void operator()(const Norm& n) {
    add(weights_.names, ".weight", 1);
    if (n.has_bias) add(bias_names(), ".bias", 1);
  }
  void operator()(const Pointwise& p) {
    if (p.scales > 0) add(weights_.names, ".weight", 1);
  }
  void operator()(const auto&) {}

 private:
  const std::vector<std::string>& bias_names() const {
    return weights_.bias_names.empty() ? weights_.names : weights_.bias_names;
  }
  void add(const std::vector<std::string>& names, const char* ending, int64_t experts) {
    auto& own = listed_.emplace_back();
    if (weights_.are_bare) ending = "";
    for (int64_t copy = 0; copy < experts; ++copy) {
      for (const std::string& name : names) {
        if (!name.empty()) own.push_back(path_ + numbered(name, copy) + ending);
      }
    }
  }

  const OpWeights& weights_;
  std::string path_;
  std::vector<std::vector<std::string>>& listed_;
};

}  // namespace

std::string numbered(const std::string& pattern, int64_t number) {
  const size_t place = pattern.find("{}");
  if (place == std::string::npos) return pattern;
  return pattern.substr(0, place) + std::to_string(number) + pattern.substr(place + 2);
}

void name_weights(Block& block, const WeightTable& table) {
  name_ops(block, shared_names(table));
}

void name_weights(Module& module, const WeightTable& table) {
  const SharedNames names = shared_names(table);
  name_ops(module.entry, names);
  for (Block& kind : module.distinct_layers) name_ops(kind, names);
  name_ops(module.exit, names);
}

std::string path_of_block(const Module& module, int64_t place) {
  if (place == 0) return module.paths.entry;
  if (place + 1 == num_blocks(module)) return module.paths.exit;
  return numbered(module.paths.layer, place - 1);
}

std::vector<std::vector<std::string>> weight_names(const Module& module, int64_t place) {
  std::vector<std::vector<std::string>> listed;
  for (const Op& op : block_at(module, place).ops) {
    if (op.weights) std::visit(OpLister(*op.weights, path_of_block(module, place), listed), op.shape);
  }
  return listed;
}

}  // namespace weft
