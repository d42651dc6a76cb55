#include "weft/cost/program_memory.h"

#include <algorithm>
#include <cmath>

#include "weft/base/as_double.h"
#include "weft/cost/attended_rows.h"
#include "weft/cost/program_walk.h"
#include "weft/mesh/split.h"

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

/// Rows of one rank, and with whom they attend.
struct RankRows {
  int64_t rows = 0;
  AttendedRows attended;
};

/// Rows that context parallelism shares out are those of the last rank, to which a causal ring brings most keys.
RankRows rows_of_rank(const Block& block, const BlockSetting& setting, const Segments& segments) {
  const BlockProgram& program = *block.program;
  const auto attention = std::find_if(block.ops.begin(), block.ops.end(),
                                      [](const Op& op) { return std::holds_alternative<Attention>(op.shape); });
  const Mask mask = attention == block.ops.end() ? Mask::kWindowed : std::get<Attention>(attention->shape).mask;
  const int64_t all = samples_of(program, segments) * program.rows.rows_per_sample;
  if (setting.cp == 1 || mask == Mask::kWindowed || all < setting.cp) {
    const int64_t rows = samples_of(program, segments, setting.cp) * program.rows.rows_per_sample;
    return {.rows = rows,
            .attended = {.lengths = std::make_shared<std::vector<int64_t>>(whole_segments(segments, rows)),
                         .shared = nullptr}};
  }
  const std::vector<int64_t> lengths = whole_segments(segments, all);
  std::vector<std::vector<Range>> even;
  for (int64_t rank = 0; rank < setting.cp; ++rank) even.push_back({Split(all, {setting.cp}).part(rank)});
  const RowDeal deal = mask == Mask::kFull ? RowDeal(std::move(even)) : RowDeal::zigzag(lengths, setting.cp);
  const int64_t last = setting.cp - 1;
  return {.rows = deal.num_rows(last), .attended = attended_rows(lengths, deal, setting.cp_ulysses, last)};
}

}  // namespace

ProgramMeaning::Ranks ranks_of(const BlockSetting& setting) {
  return {.tp = setting.tp,
          .divides_rows = setting.row_share() > 1,
          .reduces_first = reduces_first(setting.precision),
          .ulysses = setting.cp_ulysses,
          .ring = setting.cp / setting.cp_ulysses};
}

int64_t samples_of(const BlockProgram& block, const Segments& segments, int64_t cp) {
  return std::max<int64_t>(1, std::llround(num_tokens(segments) / as_double(block.rows.rows_per_sample * cp)));
}

BlockMemory program_memory(const Block& block, const BlockSetting& setting, const Segments& segments) {
  BlockMemory total;
  if (num_tokens(segments) <= 0) return total;
  const BlockProgram& program = *block.program;
  const RankRows own = rows_of_rank(block, setting, segments);
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
                      .whole_rows = own.rows,
                      .segments = own.attended.lengths,
                      .shared = own.attended.shared,
                      // Formulas of layers count it on every device: a strategy is compared with them.
                      .keeps_activated = program.is_layer()};
  const ProgramMeaning meaning(program, ranks_of(setting));
  const RunLengths lengths = meaning.lengths(meaning.samples_of(own.rows));
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
