#include "weft/cost/program_memory.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/program_walk.h"

namespace weft {
namespace {

/// Whole sequences of about the lengths and numbers of the segments, of so many rows together.
std::vector<int64_t> whole_segments(const Segments& segments, int64_t rows) {
  std::vector<int64_t> lengths;
  int64_t left = rows;
  for (const Segment& segment : segments) {
    const int64_t length = std::max<int64_t>(1, std::llround(segment.length));
    for (int64_t count = std::llround(segment.count); count > 0 && left > 0; --count) {
      lengths.push_back(std::min(length, left));
      left -= lengths.back();
    }
  }
  if (left > 0) lengths.push_back(left);
  return lengths;
}

}  // namespace

ProgramMeaning::Ranks ranks_of(const BlockSetting& setting) {
  return {.tp = setting.tp, .divides_rows = setting.row_share() > 1, .reduces_first = reduces_first(setting.precision)};
}

int64_t samples_of(const BlockProgram& block, const Segments& segments) {
  return std::max<int64_t>(1, std::llround(num_tokens(segments) / as_double(block.rows.rows_per_sample)));
}

BlockMemory program_memory(const Block& block, const BlockSetting& setting, const Segments& segments) {
  BlockMemory total;
  if (num_tokens(segments) <= 0) return total;
  const BlockProgram& program = *block.program;
  const int64_t rows = samples_of(program, segments) * program.rows.rows_per_sample;
  ByteCount count(WalkedDevice::kGpu);
  WayBack way;
  WeightQueue queue;
  const int64_t element = element_bytes_of(setting.precision);
  WalkContext context{.count = &count,
                      .way = &way,
                      .element_bytes = element,
                      .exact_bytes = std::max<int64_t>(4, element),
                      .adds_in_place = false,
                      .share = setting.share(),
                      .divides_rows = setting.row_share() > 1,
                      .whole_rows = rows,
                      .segments = std::make_shared<std::vector<int64_t>>(whole_segments(segments, rows)),
                      // Formulas of layers count it on every device: a strategy is compared with them.
                      .keeps_activated = program.is_layer()};
  const ProgramMeaning meaning(program, ranks_of(setting));
  const RunLengths lengths = meaning.lengths(samples_of(program, segments));
  const auto bytes_of = [&](std::optional<size_t> value) {
    return value ? meaning.elements(*value, lengths, std::nullopt) * element : int64_t{0};
  };
  const auto walk = [&] {
    CountedTensor x;
    if (program.carried_in) x = context.make(bytes_of(program.carried_in));
    return walk_program_block({.block = block}, x, context);
  };
  int64_t given = 0;  // by the block behind
  {
    CountedTensor y = walk();
    given = y.bytes();
    y.reset();
    const int64_t saved = count.held();
    total.saved = as_double(saved);
    total.workspace = as_double(std::max<int64_t>(0, count.peak() - saved));
    count.forget_peak();
    way.run(context.make(given));
    total.workspace = std::max(total.workspace, as_double(count.peak() - saved));
  }
  total.saved_selective = total.saved;
  if (program.carried_in) total.saved_full = std::min(total.saved, as_double(bytes_of(program.carried_in)));
  context.queue = &queue;
  walk().reset();
  way.run(context.make(given));
  total.deferred = as_double(count.held());
  return total;
}

}  // namespace weft
