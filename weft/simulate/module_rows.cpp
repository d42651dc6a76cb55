#include "weft/simulate/module_rows.h"

#include <algorithm>

#include "weft/meaning/row_shares.h"
#include "weft/mesh/split.h"

namespace weft {
namespace {

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t value : values) total += value;
  return total;
}

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

std::vector<int64_t> parts_of_group(const std::vector<int64_t>& segments, const RowDeal& deal, int64_t ulysses,
                                    int64_t group) {
  std::vector<int64_t> parts(segments.size(), 0);
  for (int64_t rank = group * ulysses; rank < (group + 1) * ulysses; ++rank) {
    const std::vector<int64_t> own = parts_of(segments, deal.ranges(rank));
    for (size_t i = 0; i < parts.size(); ++i) parts[i] += own[i];
  }
  return parts;
}

/// Of every segment: one group's queries, and the keys of another that they use. Both must have a part of it. Where
/// rows only see what came before and every group has a part of each segment's first half and one of its second,
/// earlier groups use all that later ones have, with the second half of their queries, and later ones the first half.
std::vector<std::pair<int64_t, int64_t>> used_keys(const std::vector<int64_t>& segments, const RowDeal& deal,
                                                   int64_t ulysses, int64_t of, int64_t by, bool is_causal) {
  const std::vector<int64_t> theirs = parts_of_group(segments, deal, ulysses, of);
  const std::vector<int64_t> own = parts_of_group(segments, deal, ulysses, by);
  std::vector<std::pair<int64_t, int64_t>> used;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t keys = is_causal && of < by ? (theirs[i] + 1) / 2 : theirs[i];
    const int64_t queries = is_causal && of > by ? (own[i] + 1) / 2 : own[i];
    if (own[i] > 0 && keys > 0) used.emplace_back(queries, keys);
  }
  return used;
}

int64_t num_keys(const std::vector<std::pair<int64_t, int64_t>>& used) {
  int64_t keys = 0;
  for (const auto& block : used) keys += block.second;
  return keys;
}

/// How a rank of context parallelism attends to rows that are dealt out.
ModuleRows::Segments share_segments(const std::vector<int64_t>& segments, const RowDeal& deal, const ModulePlan& module,
                                    const RankPlace& place, bool is_causal = false) {
  const int64_t ulysses = module.cp_ulysses, group = place.cp / ulysses;
  bool is_local = true;
  std::vector<int64_t> of_group(segments.size(), 0);
  SharedRows shared{.ulysses = ulysses, .place = place.cp % ulysses};
  size_t num_ranges = 0;
  for (int64_t rank = 0; rank < module.cp; ++rank) {
    if (rank / ulysses != group) continue;
    const std::vector<int64_t> parts = parts_of(segments, deal.ranges(rank));
    for (size_t i = 0; i < segments.size(); ++i) {
      is_local = is_local && (parts[i] == 0 || parts[i] == segments[i]);
      of_group[i] += parts[i];
    }
    shared.group_rows += deal.num_rows(rank);
    num_ranges += deal.ranges(rank).size();
  }
  if (is_local) {
    return {.lengths = std::make_shared<std::vector<int64_t>>(parts_of(segments, deal.ranges(place.cp))),
            .shared = nullptr};
  }
  shared.is_scattered = num_ranges > 1;
  const int64_t groups = module.cp / ulysses;
  for (int64_t step = 1; step < groups; ++step) {
    const int64_t to = (group + step) % groups, from = (group + groups - step) % groups;
    SharedRows::RingStep& own = shared.ring.emplace_back();
    own.sent = num_keys(used_keys(segments, deal, ulysses, group, to, is_causal));
    own.blocks = used_keys(segments, deal, ulysses, from, group, is_causal);
    own.received = num_keys(own.blocks);
  }
  return {.lengths = std::make_shared<std::vector<int64_t>>(std::move(of_group)),
          .shared = std::make_shared<SharedRows>(shared)};
}

ModuleRows text_rows(const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load) {
  const LlmShare share = share_llm(load, module.cp, place.cp);
  ModuleRows rows;
  rows.segments = share_segments(load.samples, share.deal, module, place, /*is_causal=*/true);
  rows.whole = share.tokens;
  rows.targets = share.targets;
  for (const auto& [kind, places] : share.places) rows.needed[kind] = std::ssize(places);
  return rows;
}

/// Two frames a row, and one more on each side that neighbours convolve, too.
int64_t frames_seen(int64_t rows, int64_t all_rows, int64_t all_frames) {
  if (rows == all_rows) return all_frames;
  return rows == 0 ? 0 : std::min(all_frames, 2 * rows + 1);
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
  if (module.kind == ModuleKind::kAudio) rows.frames = frames_seen(rows.between, sum(load.segments), load.frames);
  return rows;
}

ModuleRows rows_of(const Plan& plan, const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load) {
  if (module.is_encoder()) {
    const auto found = load.media.find(module.kind);
    return found == load.media.end() ? ModuleRows() : encoder_rows(plan, module, place, found->second);
  }
  ModuleRows rows = text_rows(module, place, load);
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
