#include "weft/simulate/module_rows.h"

#include <algorithm>
#include <numeric>

#include "weft/meaning/row_shares.h"
#include "weft/mesh/context_blocks.h"
#include "weft/mesh/split.h"

namespace weft {
namespace {

int64_t rows_between(const ModulePlan& module, const RankPlace& place, int64_t whole) {
  if (!module.sequence_parallel || module.tp == 1) return whole;
  return Split(whole, {module.tp}).part(place.tp).size();
}

/// Of every segment, the rows that ranges have of it.
std::vector<int64_t> parts_of(const std::vector<int64_t>& segments, const std::vector<Range>& ranges) {
  std::vector<int64_t> parts;
  int64_t begin = 0;
  for (const int64_t length : segments) {
    int64_t here = 0;
    for (const Range& range : ranges)
      here += std::max<int64_t>(0, std::min(range.end, begin + length) - std::max(range.begin, begin));
    parts.push_back(here);
    begin += length;
  }
  return parts;
}

/// How a rank of context parallelism attends to rows that are dealt out.
ModuleRows::Segments share_segments(const std::vector<int64_t>& segments, const RowDeal& deal, const ModulePlan& module,
                                    const RankPlace& place) {
  const int64_t ulysses = module.cp_ulysses;
  RowsInRing shared{.ulysses = ulysses,
                    .place = place.cp % ulysses,
                    .group = place.cp / ulysses,
                    .segments = PackedSegments(segments)};
  UlyssesRows rows = ulysses_rows(deal, shared.segments, ulysses, place.cp);
  if (rows.is_local) {
    return {.lengths = std::make_shared<std::vector<int64_t>>(parts_of(segments, deal.ranges(place.cp))),
            .shared = nullptr};
  }
  size_t num_ranges = 0;
  for (const std::vector<Range>& own : rows.neighbours) {
    shared.group_rows += total_size(own);
    num_ranges += own.size();
  }
  shared.is_scattered = num_ranges > 1;
  shared.in_ring = std::move(rows.in_ring);
  return {.lengths = nullptr, .shared = std::make_shared<RowsInRing>(std::move(shared))};
}

ModuleRows llm_rows(const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load) {
  const LlmShare share = share_llm(load, module.cp, place.cp);
  ModuleRows rows;
  rows.segments = share_segments(load.samples, share.deal, module, place);
  rows.whole = share.tokens;
  rows.targets = share.targets;
  for (const auto& [kind, places] : share.places) rows.needed[kind] = std::ssize(places);
  return rows;
}

/// Two frames a row, and `beside` that neighbours have, too.
int64_t frames_seen(int64_t rows, int64_t beside, const EncoderLoad& load) {
  if (rows == std::accumulate(load.segments.begin(), load.segments.end(), int64_t{0})) return load.frames;
  return rows == 0 ? 0 : std::min(load.frames, 2 * rows + beside);
}

}  // namespace

ModuleRows encoder_rows(const Plan& plan, const ModulePlan& module, const RankPlace& place, const EncoderLoad& load) {
  const EncoderShare share = share_encoder(plan, module.kind, load, module.cp, place.cp);
  ModuleRows rows;
  rows.segments = share_segments(load.segments, share.deal, module, place);
  if (!load.windows.empty()) rows.windows = share_segments(load.windows, share.deal, module, place);
  rows.whole = share.inside;
  rows.out_whole = share.outside;
  rows.between = rows_between(module, place, rows.whole);
  rows.out_between = rows_between(module, place, rows.out_whole);
  if (module.kind == ModuleKind::kAudio) {
    rows.frames = frames_seen(rows.between, 1, load);
    rows.frames_given = frames_seen(rows.whole, 3, load);  // the first convolution sees one more on each side
  }
  return rows;
}

ModuleRows rows_of(const Plan& plan, const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load) {
  if (module.is_encoder()) {
    const auto found = load.media.find(module.kind);
    return found == load.media.end() ? ModuleRows() : encoder_rows(plan, module, place, found->second);
  }
  ModuleRows rows = llm_rows(module, place, load);
  rows.between = rows_between(module, place, rows.whole);
  rows.needed_between = rows.needed;
  if (rows.between < rows.whole) {
    const Range own = Split(rows.whole, {module.tp}).part(place.tp);
    for (const auto& [kind, places] : share_llm(load, module.cp, place.cp).places)
      rows.needed_between[kind] = std::count_if(places.begin(), places.end(),
                                                [&](int64_t token) { return token >= own.begin && token < own.end; });
  }
  return rows;
}

}  // namespace weft
