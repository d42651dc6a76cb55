#include "weft/cost/program_walk.h"

#include <cmath>

namespace weft {
namespace {

/// Elements of a row that an operator makes on this rank.
struct MadeWidth {
  const Op& op;
  const OpShare& share;

  int64_t operator()(const Matmul& m) const { return local_matmul(m, op.split(), share).out; }
  int64_t operator()(const Attention& a) const { return local_heads(a, share).queries * a.head_dim; }
  int64_t operator()(const Norm& n) const { return n.width * n.groups; }
  int64_t operator()(const Pointwise& p) const {
    return op.out == Features::kWidth ? p.elements_out : (p.elements_out + share.tp - 1) / share.tp;
  }
  int64_t operator()(const Lookup& l) const { return l.width; }
  int64_t operator()(const CrossEntropy&) const { return 1; }
};

/// Numbers that attention keeps beside what it makes: weights between the rows of a sample, twice.
int64_t score_elements(const Op& op, const WalkContext& context) {
  const auto* attention = std::get_if<Attention>(&op.shape);
  if (attention == nullptr || !context.segments) return 0;
  int64_t pairs = 0;
  for (const int64_t rows : *context.segments) pairs += rows * rows;
  return 2 * pairs * local_heads(*attention, context.share).queries;
}

}  // namespace

CountedTensor walk_program_block(const WalkedBlock& block, const CountedTensor& x, const WalkContext& context) {
  CountedTensor last = x;
  for (const Op& op : block.block.ops) {
    const auto rows = static_cast<int64_t>(std::ceil(op.rows.of(static_cast<double>(context.whole_rows))));
    CountedTensor made = context.rows_of(rows, std::visit(MadeWidth{op, context.share}, op.shape));
    const CountedTensor scores = context.make(score_elements(op, context) * context.element_bytes);
    const WalkContext here = block.at(op, context);
    here.add_step([here, made, scores, read = last](const CountedTensor& dy) {
      // Products of the weight's gradient may wait, with what they are made of.
      if (here.trains && here.queue != nullptr) here.queue->push_back([read, dy] {});
      return here.passes_on ? here.make(read.bytes()) : CountedTensor();
    });
    last = std::move(made);
  }
  return last;
}

}  // namespace weft
