#include "weft/simulate/module_rows.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/mesh/row_deal.h"
#include "weft/mesh/split.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (const int64_t value : values) total += value;
  return total;
}

std::vector<int64_t> borders_of(const std::vector<int64_t>& lengths) {
  std::vector<int64_t> borders{0};
  for (const int64_t length : lengths) borders.push_back(borders.back() + length);
  return borders;
}

int64_t rows_between(const ModulePlan& module, const ModulePlace& place, int64_t whole) {
  if (!module.sequence_parallel || module.tp == 1) return whole;
  return Split(whole, {module.tp}).part(place.tp).size();
}

/// How many of some rows a rank has.
int64_t num_here(const std::vector<int64_t>& rows, const RowDeal& deal, int64_t rank) {
  int64_t count = 0;
  for (const int64_t row : rows) {
    for (const Range& range : deal.ranges(rank)) count += row >= range.begin && row < range.end ? 1 : 0;
  }
  return count;
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
/// earlier groups use all that later ones have, and later ones the first half.
std::vector<std::pair<int64_t, int64_t>> used_keys(const std::vector<int64_t>& segments, const RowDeal& deal,
                                                   int64_t ulysses, int64_t of, int64_t by, bool is_causal) {
  const std::vector<int64_t> theirs = parts_of_group(segments, deal, ulysses, of);
  const std::vector<int64_t> own = parts_of_group(segments, deal, ulysses, by);
  std::vector<std::pair<int64_t, int64_t>> used;
  for (size_t i = 0; i < segments.size(); ++i) {
    const int64_t keys = is_causal && of < by ? (theirs[i] + 1) / 2 : theirs[i];
    if (own[i] > 0 && keys > 0) used.emplace_back(own[i], keys);
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
                                    const ModulePlace& place, bool is_causal = false) {
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

ModuleRows text_rows(const ModulePlan& module, const ModulePlace& place, const MicrobatchLoad& load) {
  const RowDeal deal = RowDeal::zigzag(load.samples, module.cp);
  ModuleRows rows{.has_data = true};
  rows.segments = share_segments(load.samples, deal, module, place, /*is_causal=*/true);
  rows.whole = deal.num_rows(place.cp);
  rows.targets = num_here(load.targets, deal, place.cp);
  for (const auto& [kind, places] : load.places) rows.needed[kind] = num_here(places, deal, place.cp);
  return rows;
}

ModuleRows vision_rows(const ModulePlan& module, const ModulePlace& place, const EncoderLoad& load, int64_t unit) {
  const int64_t patches = sum(load.segments);
  std::vector<int64_t> allowed;
  for (int64_t patch = 0; patch <= patches; patch += unit) allowed.push_back(patch);
  const RowDeal deal =
      RowDeal::contiguous(patches, module.cp, allowed, borders_of(load.windows.empty() ? load.segments : load.windows));
  ModuleRows rows{.has_data = true};
  rows.segments = share_segments(load.segments, deal, module, place);
  if (!load.windows.empty()) rows.windows = share_segments(load.windows, deal, module, place);
  rows.whole = deal.num_rows(place.cp);
  rows.out_whole = rows.whole / unit;
  return rows;
}

ModuleRows audio_rows(const ModulePlan& module, const ModulePlace& place, const EncoderLoad& load) {
  const int64_t all = sum(load.segments);
  std::vector<bool> is_allowed(static_cast<size_t>(all + 1), true);
  for (const int64_t first : load.pairs) is_allowed[static_cast<size_t>(first + 1)] = false;
  std::vector<int64_t> allowed, preferred;
  for (int64_t row = 0; row <= all; ++row)
    if (is_allowed[static_cast<size_t>(row)]) allowed.push_back(row);
  for (const int64_t row : borders_of(load.segments))
    if (is_allowed[static_cast<size_t>(row)]) preferred.push_back(row);
  const RowDeal deal = RowDeal::contiguous(all, module.cp, allowed, preferred);
  ModuleRows rows{.has_data = true};
  rows.segments = share_segments(load.segments, deal, module, place);
  rows.whole = deal.num_rows(place.cp);
  rows.out_whole = num_here(load.pairs, deal, place.cp);
  return rows;
}

/// Two frames a row, and one more on each side that neighbours convolve, too.
int64_t frames_seen(int64_t rows, int64_t all_rows, int64_t all_frames) {
  if (rows == all_rows) return all_frames;
  return rows == 0 ? 0 : std::min(all_frames, 2 * rows + 1);
}

}  // namespace

std::optional<ModulePlace> find_place(const ModulePlan& module, int64_t rank) {
  const auto mesh = mesh_of(module);
  WEFT_CHECK(mesh.ok(), "{}", mesh.error().message());
  if (!mesh->contains(rank)) return std::nullopt;
  const auto along = [&](const char* axis) {
    const auto found = mesh->grid().find(axis);
    return found ? mesh->coordinates_of(rank)[*found] : 0;
  };
  return ModulePlace{.tp = along("tp"), .cp = along("cp"), .dp = along("dp"), .pp = along("pp")};
}

int64_t data_place(const ModulePlan& module, int64_t rank) {
  const auto mesh = mesh_of(module);
  WEFT_CHECK(mesh.ok(), "{}", mesh.error().message());
  return mesh->grid().group_index(mesh->position_of(rank), mesh->grid().axes_named({"cp", "dp"}));
}

ModuleRows encoder_rows(const Plan& plan, const ModulePlan& module, const ModulePlace& place, const EncoderLoad& load) {
  const bool is_vision = module.kind == ModuleKind::kVision;
  ModuleRows rows = is_vision ? vision_rows(module, place, load, plan.model.media.patches_per_embedding)
                              : audio_rows(module, place, load);
  rows.between = rows_between(module, place, rows.whole);
  rows.out_between = rows_between(module, place, rows.out_whole);
  if (!is_vision) rows.frames = frames_seen(rows.between, sum(load.segments), load.frames);
  return rows;
}

ModuleRows rows_of(const Plan& plan, const ModulePlan& module, const ModulePlace& place, const MicrobatchLoad& load) {
  if (module.is_encoder()) {
    const auto found = load.media.find(module.kind);
    return found == load.media.end() ? ModuleRows() : encoder_rows(plan, module, place, found->second);
  }
  ModuleRows rows = text_rows(module, place, load);
  rows.between = rows_between(module, place, rows.whole);
  return rows;
}

}  // namespace weft
