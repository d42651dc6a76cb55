#include "weft/simulate/wanted_operators.h"

#include <cmath>
#include <set>

#include "weft/base/as_double.h"
#include "weft/cost/measured_shape.h"
#include "weft/meaning/program_exchanges.h"

namespace weft {
namespace {

/// What a rank's other operators hold, with gradients.
int64_t passing_bytes(const Program& program, int64_t tp, int64_t num_layers) {
  constexpr int64_t kMostBytes = 64 << 20;  // more than a core's share of most caches
  constexpr int64_t kBytes = 8;             // of a number and its gradient
  int64_t elements = 0;
  for (size_t value = 0; value < program.values.size(); ++value) elements += program.num_elements(value);
  return std::min(kMostBytes, elements / tp * num_layers * kBytes);
}

}  // namespace

std::vector<OperatorCase> wanted_operators(const Model& model, const std::vector<BlockShape>& shapes) {
  std::vector<OperatorCase> own, others;
  std::set<std::pair<OperatorPart, int64_t>> known;
  const auto num_layers = std::ssize(model.modules.back().layers);
  const auto add = [&](const BlockShape& shape, const Program& program, size_t op, Choice choice,
                       std::vector<OperatorCase>& cases) {
    OperatorCase made = case_of(program, program.operators[op], choice, shape.tp);
    made.busy_ranks = shape.busy_ranks;
    made.passing_bytes = passing_bytes(program, shape.tp, num_layers);
    if (made.ranks > made.busy_ranks || !known.emplace(made.part, made.busy_ranks).second) return;
    cases.push_back(std::move(made));
  };
  for (const bool is_own : {true, false}) {
    for (const BlockShape& shape : shapes) {
      const Module* module = model.find(shape.module);
      const Block* block = module == nullptr ? nullptr : find_block(*module, shape.block);
      if (block == nullptr || !block->program) continue;
      const auto rows = as_double(block->program->rows.rows_per_sample);
      const Program program = sized_program(*block->program, std::max<int64_t>(1, std::llround(shape.tokens / rows)));
      for (size_t op = 0; op < program.operators.size(); ++op) {
        if (is_own) {
          add(shape, program, op, block->program->choices[op], own);
          continue;
        }
        for (const Choice choice : choices_of(program.operators[op].rule)) add(shape, program, op, choice, others);
      }
    }
  }
  own.insert(own.end(), std::make_move_iterator(others.begin()), std::make_move_iterator(others.end()));
  return own;
}

}  // namespace weft
