#include "weft/cost/program_memory.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"

namespace weft {
namespace {

/// Of a value that lies whole.
double whole_elements(const Program& program, const RunLengths& lengths, size_t value) {
  double elements = 1;
  for (const size_t dim : program.values[value].dims) elements *= as_double(lengths[dim].length);
  return elements;
}

}  // namespace

std::vector<OperatorElements> elements_of(const ProgramMeaning& meaning, const RunLengths& lengths,
                                          std::optional<int64_t> tp_rank) {
  const ProgramFlow& flow = meaning.flow();
  const bool is_layer = meaning.block().is_layer();
  const Program& program = *flow.program;
  const auto is_counted = [&](size_t value) { return program.has_gradient(value) && !is_weight(program, value); };
  std::vector<OperatorElements> all(program.operators.size());
  for (const FlowSegment& segment : flow.segments) {
    // What comes for a segment is counted where its first operator reads it.
    std::vector<size_t> fresh = segment.begins;
    for (const FlowSegment::Member& member : segment.members) {
      const Operator& op = program.operators[member.op];
      OperatorElements& own = all[member.op];
      own.made = meaning.elements(op.result, lengths, tp_rank);
      own.is_product = product_dims(program, op).has_value();
      for (const FlowSegment::Read& read : member.reads) {
        if (!read.is_leaf) {
          own.read += meaning.elements(read.index, lengths, tp_rank);
          continue;
        }
        const size_t leaf = segment.leaves[read.index];
        const Arrival& arrival = flow.arrivals[leaf];
        if (!is_counted(arrival.value)) continue;
        const int64_t elements = meaning.elements(arrival, lengths, tp_rank);
        own.read += elements;
        const auto found = std::find(fresh.begin(), fresh.end(), leaf);
        if (found == fresh.end()) continue;
        fresh.erase(found);
        if (!arrival.form.is_plain()) own.arrived += elements;
      }
      if (op.kind != OperatorKind::kAttention || op.attention.dropout == 0) continue;
      // A layer's own attention draws again.
      if (is_layer && flow.inside_axes(member.op).empty()) continue;
      // Weights, factors and their products, of all pairs of rows of all samples, as far as this rank has their rows
      // and heads. The fused kernel makes none.
      const std::vector<size_t>& dims = program.values[op.result].dims;
      const double rows = as_double(lengths[dims[dims.size() - 2]].length);
      const double share = as_double(own.made) / std::max(1.0, whole_elements(program, lengths, op.result));
      const double width = as_double(lengths[dims.back()].length);
      const double pairs = whole_elements(program, lengths, op.result) / std::max(1.0, width) * rows;
      own.scores = std::llround(3 * pairs * as_double(op.attention.heads) * share);
    }
  }
  return all;
}

ProgramMeaning::Ranks ranks_of(const BlockSetting& setting) {
  return {.tp = setting.tp, .divides_rows = setting.row_share() > 1, .reduces_first = reduces_first(setting.precision)};
}

int64_t samples_of(const BlockProgram& block, const Segments& segments) {
  return std::max<int64_t>(1, std::llround(num_tokens(segments) / as_double(block.rows.rows_per_sample)));
}

BlockMemory program_memory(const BlockProgram& block, const BlockSetting& setting, const Segments& segments) {
  BlockMemory total;
  if (num_tokens(segments) <= 0) return total;
  const ProgramMeaning meaning(block, ranks_of(setting));
  const RunLengths lengths = meaning.lengths(samples_of(block, segments));
  const double bytes = num_bytes(setting.precision);
  double most_moved = 0;
  for (const OperatorElements& op : elements_of(meaning, lengths, std::nullopt)) {
    total.saved += bytes * as_double(op.made + op.arrived + op.scores);
    if (op.is_product) total.deferred += bytes * as_double(op.read + op.made);
    most_moved = std::max(most_moved, bytes * as_double(op.read + op.made));
  }
  total.saved_selective = total.saved;
  if (block.carried_in)
    total.saved_full =
        std::min(total.saved, bytes * as_double(meaning.elements(*block.carried_in, lengths, std::nullopt)));
  // Going back, gradients stand beside the values they belong to.
  total.workspace = 2 * most_moved;
  return total;
}

}  // namespace weft
