#include "weft/models/context_inputs.h"

#include <algorithm>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "weft/base/check.h"
#include "weft/mesh/context_deal.h"
#include "weft/models/listed_numbers.h"

namespace weft {
namespace {

constexpr int64_t kTaps = 3;

at::Tensor index_tensor(const std::vector<int64_t>& numbers, const at::Tensor& like) {
  return at::tensor(numbers, at::kLong).to(like.device());
}

/// A contiguous deal's rows of a rank.
Range range_of(const RowDeal& deal, int64_t rank) {
  const std::vector<Range>& ranges = deal.ranges(rank);
  WEFT_CHECK(ranges.size() <= 1, "rank {} has {} ranges, expected one", rank, ranges.size());
  return ranges.empty() ? Range{} : ranges.front();
}

/// The rows that make each unit that is merged, by the first of them, where not all rows are patches.
std::vector<int64_t> first_rows_of_units(const VisionInputs& whole, int64_t unit) {
  const std::vector<int64_t> rows = listed_numbers(whole.patch_rows);
  std::vector<int64_t> units;
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(unit)) units.push_back(rows[row]);
  return units;
}

RowDeal deal_vision(const VisionInputs& whole, int64_t unit, int64_t num_ranks) {
  const int64_t num_patches = whole.positions.size(0);
  if (whole.patch_rows.defined())
    return deal_units(num_patches, unit, first_rows_of_units(whole, unit), whole.frames, num_ranks);
  // Windows do not go beyond frames, so that their borders are the more frequent ones.
  const PackedSegments& segments = whole.windows.num_rows() > 0 ? whole.windows : whole.frames;
  return deal_patches(num_patches, unit, segments, num_ranks);
}

/// Of pixels or frames a rank's own, all of which may be held, or these, or none.
at::Tensor own_content(const at::Tensor& content, const std::optional<Range>& held, Range own) {
  if (!held) return content.narrow(0, own.begin, own.size());
  WEFT_CHECK(held->empty() || *held == own, "rows {} to {} are held, {} to {} are to be taken", held->begin, held->end,
             own.begin, own.end);
  return content;
}

/// Numbers of these rows, with those of all beside them.
std::shared_ptr<const DropoutDraws> own_draws(const std::shared_ptr<const DropoutDraws>& whole,
                                              const std::vector<int64_t>& rows) {
  if (!whole) return nullptr;
  DropoutDraws draws = *whole;
  draws.all_rows = draws.rows;
  draws.rows = draws.rows.index_select(0, at::tensor(rows, at::kLong));
  return std::make_shared<const DropoutDraws>(std::move(draws));
}

void share_vision(ContextBatch& batch, const VisionInputs& whole, int64_t merge_size, int64_t num_ranks, int64_t rank) {
  const int64_t unit = merge_size * merge_size;
  batch.patches = deal_vision(whole, unit, num_ranks);
  const Range own = range_of(batch.patches, rank);
  VisionInputs& inputs = *batch.own.vision;
  inputs.pixels = own_content(whole.pixels, whole.held, own);
  inputs.held.reset();
  inputs.positions = whole.positions.narrow(0, own.begin, own.size());
  inputs.draws = own_draws(whole.draws, batch.patches.rows(rank));
  if (whole.patch_rows.defined()) {
    const RowOwners owners(batch.patches);
    batch.vision_made = entries_by_rank(owners, first_rows_of_units(whole, unit));
    inputs.patch_rows = index_tensor(places_on_rank(owners, listed_numbers(whole.patch_rows), rank), whole.patch_rows);
    inputs.num_rows = inputs.patch_rows.size(0) / unit;
    return;
  }
  std::vector<int64_t> outputs;
  if (whole.output_order.defined()) outputs = outputs_of(listed_numbers(whole.output_order));
  batch.vision_made = merged_rows(batch.patches, unit, outputs);
  for (at::Tensor* mixed : {&inputs.mixed_entries, &inputs.mixed_weights}) {
    if (mixed->defined()) *mixed = mixed->narrow(0, own.begin, own.size());
  }
  inputs.output_order = at::Tensor();
  inputs.num_rows = own.size() / unit;
}

/// The least range that has all of these but `nothing`.
Range range_around(std::span<const int64_t> places, int64_t nothing) {
  Range range{nothing, 0};
  for (const int64_t place : places) {
    if (place == nothing) continue;
    range.begin = std::min(range.begin, place);
    range.end = std::max(range.end, place + 1);
  }
  return range.empty() ? Range{} : range;
}

/// Taps that count from where a range begins. What is outside is nothing, which the range's size stands for.
std::vector<int64_t> rebased(std::span<const int64_t> taps, Range range) {
  std::vector<int64_t> own;
  own.reserve(taps.size());
  for (const int64_t tap : taps)
    own.push_back(tap >= range.begin && tap < range.end ? tap - range.begin : range.size());
  return own;
}

/// The frames that a rank's rows see after the first convolution, and around them those that it sees itself. It is run
/// for the latter, too, where it is right for the former only, since inputs have as many taps as frames.
Range frames_seen(const AudioInputs& whole, Range rows) {
  const int64_t nothing = whole.num_frames();
  const Range convolved =
      range_around(listed_numbers(whole.second_taps.narrow(0, rows.begin * kTaps, rows.size() * kTaps)), nothing);
  return range_around(listed_numbers(whole.first_taps.narrow(0, convolved.begin * kTaps, convolved.size() * kTaps)),
                      nothing);
}

void share_audio(ContextBatch& batch, const AudioInputs& whole, int64_t num_ranks, int64_t rank) {
  const int64_t num_rows = whole.row_positions.size(0);
  const std::vector<int64_t> pairs = listed_numbers(whole.pooled_rows);
  batch.audio_rows = deal_pairs(num_rows, pairs, whole.chunks, num_ranks);
  const RowOwners owners(batch.audio_rows);
  batch.audio_made = entries_by_rank(owners, pairs);

  const Range own = range_of(batch.audio_rows, rank);
  const Range seen = frames_seen(whole, own);
  const auto taps = [](const at::Tensor& all, Range range) {
    return listed_numbers(all.narrow(0, range.begin * kTaps, range.size() * kTaps));
  };
  AudioInputs& inputs = *batch.own.audio;
  inputs.frames = own_content(whole.frames, whole.held, seen);
  inputs.held.reset();
  inputs.first_taps = index_tensor(rebased(taps(whole.first_taps, seen), seen), whole.first_taps);
  inputs.second_taps = index_tensor(rebased(taps(whole.second_taps, own), seen), whole.second_taps);
  inputs.row_positions = whole.row_positions.narrow(0, own.begin, own.size());
  inputs.draws = own_draws(whole.draws, batch.audio_rows.rows(rank));
  inputs.pooled_rows = index_tensor(places_on_rank(owners, pairs, rank), whole.pooled_rows);
  inputs.num_rows = inputs.pooled_rows.size(0);
}

void share_tokens(ContextBatch& batch, const Inputs& whole, int64_t rank) {
  WEFT_CHECK(batch.tokens.num_rows() == whole.ids.size(0), "the samples have {} tokens of {}", batch.tokens.num_rows(),
             whole.ids.size(0));
  const RowOwners owners(batch.tokens);
  const at::Tensor rows = index_tensor(batch.tokens.rows(rank), whole.ids);
  Inputs& own = batch.own;
  own.ids = whole.ids.index_select(0, rows);
  own.positions = whole.positions.index_select(1, rows);
  if (whole.targets.defined()) {
    const std::vector<int64_t> target_rows = listed_numbers(whole.target_rows);
    const RowLists entries = entries_by_rank(owners, target_rows);
    own.target_rows = index_tensor(places_on_rank(owners, target_rows, rank), whole.target_rows);
    own.targets = whole.targets.index_select(0, index_tensor(entries[static_cast<size_t>(rank)], whole.targets));
  }
  own.draws = own_draws(whole.draws, batch.tokens.rows(rank));
  const auto share_places = [&](const at::Tensor& places, at::Tensor& own_places, RowLists& needed) {
    if (!places.defined()) return;
    const std::vector<int64_t> tokens = listed_numbers(places);
    own_places = index_tensor(places_on_rank(owners, tokens, rank), places);
    needed = entries_by_rank(owners, tokens);
  };
  share_places(whole.vision_places, own.vision_places, batch.vision_needed);
  share_places(whole.audio_places, own.audio_places, batch.audio_needed);
}

}  // namespace

Range pixel_rows_of(const VisionInputs& whole, int64_t merge_size, int64_t num_ranks, int64_t rank) {
  return range_of(deal_vision(whole, merge_size * merge_size, num_ranks), rank);
}

Range mel_frames_of(const AudioInputs& whole, int64_t num_ranks, int64_t rank) {
  const RowDeal rows =
      deal_pairs(whole.row_positions.size(0), listed_numbers(whole.pooled_rows), whole.chunks, num_ranks);
  return num_ranks == 1 ? Range{0, whole.num_frames()} : frames_seen(whole, range_of(rows, rank));
}

ContextBatch context_batch(const Inputs& whole, const ModelNumbers& numbers, int64_t num_ranks, int64_t rank) {
  WEFT_CHECK(rank >= 0 && rank < num_ranks, "rank {} of {}", rank, num_ranks);
  const RowLists nothing(static_cast<size_t>(num_ranks));
  ContextBatch batch{.own = whole,
                     .tokens = RowDeal::zigzag(whole.samples.lengths(), num_ranks),
                     .patches = RowDeal::contiguous(0, num_ranks, {}, {}),
                     .audio_rows = RowDeal::contiguous(0, num_ranks, {}, {}),
                     .vision_made = nothing,
                     .vision_needed = nothing,
                     .audio_made = nothing,
                     .audio_needed = nothing};
  if (whole.ids.defined()) share_tokens(batch, whole, rank);
  if (whole.vision) share_vision(batch, *whole.vision, numbers.vision->merge_size, num_ranks, rank);
  if (whole.audio) share_audio(batch, *whole.audio, num_ranks, rank);
  return batch;
}

}  // namespace weft
