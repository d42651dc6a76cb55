#include "weft/program/layer_program.h"

#include <algorithm>

#include "weft/base/divisors.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/block_program.h"

namespace weft {
namespace {

std::optional<Error> find_unsupported(const Block& block) {
  const auto refused = [&](std::string problem, std::string advice) {
    return Error{.field = block.name, .problem = std::move(problem), .advice = std::move(advice)};
  };
  if (!block.layer.empty())
    return refused("is computed by a library's own layer, whose operators have no strategies", "Leave it out.");
  if (has_adapters(block))
    return refused("has adapters, which strategies do not divide yet",
                   "Leave the strategy out, or train without adapters.");
  return std::nullopt;
}

/// Operators before the half that has experts, which begins behind a sum; all where there are none.
size_t num_before_experts(const Block& block) {
  const auto router = std::find_if(block.ops.begin(), block.ops.end(), is_router);
  if (router == block.ops.end()) return block.ops.size();
  const auto sum = std::find_if(std::make_reverse_iterator(router), block.ops.rend(), [](const Op& op) {
    const auto* pointwise = std::get_if<Pointwise>(&op.shape);
    return pointwise != nullptr && pointwise->is_sum;
  });
  return static_cast<size_t>(block.ops.rend() - sum);
}

/// Elements of a gate and what it opens lie in as many parts as there are ranks, so that each has its part of both in
/// one piece. Where that does not go they lie in so many that ranks have nearly the same.
int64_t gate_shares(const Block& block, int64_t tp) {
  constexpr int64_t kSharesOfRank = 16;
  for (const Op& op : block.ops) {
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    if (matmul == nullptr || matmul->packed == 1) continue;
    const int64_t width = matmul->out / matmul->packed;
    if (width % tp == 0) return tp;
    const std::vector<int64_t> all = divisors(width);
    const auto enough = std::lower_bound(all.begin(), all.end(), kSharesOfRank * tp);
    return enough == all.end() ? width : *enough;
  }
  return 0;
}

/// Whatever is done on whole rows is done on each rank's own, where these are divided.
std::vector<Choice> on_divided_rows(const Program& program, std::vector<Choice> choices, size_t rows_dim) {
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] != Choice::same()) continue;
    const Operator& op = program.operators[i];
    const std::vector<size_t>& dims = program.values[op.result].dims;
    const auto place = static_cast<size_t>(std::find(dims.begin(), dims.end(), rows_dim) - dims.begin());
    if (place < dims.size()) choices[i] = Choice::cut(op.rule.result[place].front());
  }
  return choices;
}

}  // namespace

Result<BlockProgram> layer_program(const Module& module, size_t kind, int64_t tp) {
  const Block& layer = module.distinct_layers[kind];
  if (auto error = find_unsupported(layer)) return *std::move(error);
  const ProgramSizes sizes{.samples = 1, .rows = tp, .gate_shares = gate_shares(layer, tp), .has_rotary_tables = true};
  BlockProgram block;
  const size_t num_ops = num_before_experts(layer);
  WEFT_TRY(block.program, program_of_layer(module, kind, num_ops, sizes, layer.name));
  const Program& program = block.program;
  block.num_own = program.operators.size();
  block.num_behind = layer.ops.size() - num_ops;
  block.rows = {.sample_dim = *program.find_dim("s"), .rows_per_sample = 1};
  block.carried_in = *program.find_value("x");
  block.carried_out = program.operators.back().result;
  const ProgramFeatures features = features_of(program, {*program.find_dim("h")});
  for (const std::optional<size_t>& cut : features.tensor_cuts)
    block.choices.push_back(cut ? Choice::cut(*cut) : Choice::same());
  append_end(block);
  block.divided = on_divided_rows(program, block.choices, block.rows.sample_dim);
  return block;
}

}  // namespace weft
