#include "weft/simulate/module_rows.h"

#include <algorithm>
#include <numeric>

#include "weft/meaning/row_shares.h"
#include "weft/mesh/split.h"

namespace weft {
namespace {

int64_t rows_between(const ModulePlan& module, const RankPlace& place, int64_t whole) {
  if (!module.sequence_parallel || module.tp == 1) return whole;
  return Split(whole, {module.tp}).part(place.tp).size();
}

ModuleRows llm_rows(const ModulePlan& module, const RankPlace& place, const MicrobatchLoad& load) {
  const LlmShare share = share_llm(load, module.cp, place.cp);
  ModuleRows rows;
  rows.segments = attended_rows(load.samples, share.deal, module.cp_ulysses, place.cp);
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
  rows.segments = attended_rows(load.segments, share.deal, module.cp_ulysses, place.cp);
  if (!load.windows.empty()) rows.windows = attended_rows(load.windows, share.deal, module.cp_ulysses, place.cp);
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
