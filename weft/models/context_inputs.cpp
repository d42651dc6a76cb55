#include "weft/models/context_inputs.h"

#include <algorithm>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr int64_t kTaps = 3;

std::vector<int64_t> numbers_of(const at::Tensor& indices) {
  const at::Tensor here = indices.cpu().contiguous();
  const int64_t* begin = here.data_ptr<int64_t>();
  return {begin, begin + here.numel()};
}

at::Tensor index_tensor(const std::vector<int64_t>& numbers, const at::Tensor& like) {
  return at::tensor(numbers, at::kLong).to(like.device());
}

/// Where segments begin and end.
std::vector<int64_t> borders_of(const PackedSegments& segments) {
  std::vector<int64_t> borders{0};
  for (const int64_t length : segments.lengths()) borders.push_back(borders.back() + length);
  return borders;
}

/// A contiguous deal's rows of a rank.
Range range_of(const RowDeal& deal, int64_t rank) {
  const std::vector<Range>& ranges = deal.ranges(rank);
  WEFT_CHECK(ranges.size() <= 1, "rank {} has {} ranges, expected one", rank, ranges.size());
  return ranges.empty() ? Range{} : ranges.front();
}

/// Who has each row, and as which of its own.
struct RowOwners {
  std::vector<size_t> rank;
  std::vector<int64_t> place;

  explicit RowOwners(const RowDeal& deal)
      : rank(static_cast<size_t>(deal.num_rows())), place(static_cast<size_t>(deal.num_rows())) {
    for (int64_t r = 0; r < deal.num_ranks(); ++r) {
      int64_t next = 0;
      for (const Range& range : deal.ranges(r)) {
        for (int64_t row = range.begin; row < range.end; ++row) {
          rank[static_cast<size_t>(row)] = static_cast<size_t>(r);
          place[static_cast<size_t>(row)] = next++;
        }
      }
    }
  }
};

/// Of a list of rows, which entries each rank has (numbers of the list), and the places of one rank's.
struct SharedRows {
  RowLists entries;
  std::vector<int64_t> own_places;

  SharedRows(const at::Tensor& rows, const RowOwners& owners, int64_t num_ranks, int64_t rank)
      : entries(static_cast<size_t>(num_ranks)) {
    const std::vector<int64_t> all = numbers_of(rows);
    for (size_t entry = 0; entry < all.size(); ++entry) {
      const auto row = static_cast<size_t>(all[entry]);
      entries[owners.rank[row]].push_back(static_cast<int64_t>(entry));
      if (owners.rank[row] == static_cast<size_t>(rank)) own_places.push_back(owners.place[row]);
    }
  }
};

void share_vision(ContextBatch& batch, const VisionInputs& whole, int64_t merge_size, int64_t num_ranks, int64_t rank) {
  const int64_t unit = merge_size * merge_size;
  const int64_t num_patches = whole.pixels.size(0);
  std::vector<int64_t> allowed;
  for (int64_t patch = 0; patch <= num_patches; patch += unit) allowed.push_back(patch);
  // Windows do not go beyond frames, so that their borders are the more frequent ones.
  const std::vector<int64_t> preferred = borders_of(whole.windows.num_rows() > 0 ? whole.windows : whole.frames);
  batch.patches = RowDeal::contiguous(num_patches, num_ranks, allowed, preferred);

  std::vector<int64_t> output_of(static_cast<size_t>(whole.num_rows));  // which output each of the encoder's rows is
  for (size_t row = 0; row < output_of.size(); ++row) output_of[row] = static_cast<int64_t>(row);
  if (whole.output_order.defined()) {
    const std::vector<int64_t> order = numbers_of(whole.output_order);
    for (size_t output = 0; output < order.size(); ++output)
      output_of[static_cast<size_t>(order[output])] = static_cast<int64_t>(output);
  }
  for (int64_t r = 0; r < num_ranks; ++r) {
    const Range patches = range_of(batch.patches, r);
    batch.vision_made[static_cast<size_t>(r)].assign(output_of.begin() + patches.begin / unit,
                                                     output_of.begin() + patches.end / unit);
  }

  const Range own = range_of(batch.patches, rank);
  VisionInputs& inputs = *batch.own.vision;
  inputs.pixels = whole.pixels.narrow(0, own.begin, own.size());
  inputs.positions = whole.positions.narrow(0, own.begin, own.size());
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

void share_audio(ContextBatch& batch, const AudioInputs& whole, int64_t num_ranks, int64_t rank) {
  const int64_t num_rows = whole.row_positions.size(0);
  const std::vector<int64_t> pairs = numbers_of(whole.pooled_rows);
  std::vector<bool> is_allowed(static_cast<size_t>(num_rows + 1), true);
  for (const int64_t first : pairs) is_allowed[static_cast<size_t>(first + 1)] = false;
  std::vector<int64_t> allowed;
  for (int64_t row = 0; row <= num_rows; ++row) {
    if (is_allowed[static_cast<size_t>(row)]) allowed.push_back(row);
  }
  // The rows of a pair may be of two chunks where these are odd.
  std::vector<int64_t> preferred = borders_of(whole.chunks);
  std::erase_if(preferred, [&](int64_t row) { return !is_allowed[static_cast<size_t>(row)]; });
  batch.audio_rows = RowDeal::contiguous(num_rows, num_ranks, allowed, preferred);

  const RowOwners owners(batch.audio_rows);
  const SharedRows pooled(whole.pooled_rows, owners, num_ranks, rank);
  batch.audio_made = pooled.entries;

  const Range own = range_of(batch.audio_rows, rank);
  const int64_t nothing = whole.frames.size(0);
  const std::vector<int64_t> first = numbers_of(whole.first_taps);
  const std::vector<int64_t> second = numbers_of(whole.second_taps.narrow(0, own.begin * kTaps, own.size() * kTaps));
  // The frames that this rank's rows see after the first convolution, and around them those that it sees itself. It is
  // run for the latter, too, where it is right for the former only, since inputs have as many taps as frames.
  const Range convolved = range_around(second, nothing);
  const Range seen = range_around(std::span(first).subspan(static_cast<size_t>(convolved.begin * kTaps),
                                                           static_cast<size_t>(convolved.size() * kTaps)),
                                  nothing);
  AudioInputs& inputs = *batch.own.audio;
  inputs.frames = whole.frames.narrow(0, seen.begin, seen.size());
  inputs.first_taps = index_tensor(rebased(std::span(first).subspan(static_cast<size_t>(seen.begin * kTaps),
                                                                    static_cast<size_t>(seen.size() * kTaps)),
                                           seen),
                                   whole.first_taps);
  inputs.second_taps = index_tensor(rebased(second, seen), whole.second_taps);
  inputs.row_positions = whole.row_positions.narrow(0, own.begin, own.size());
  inputs.pooled_rows = index_tensor(pooled.own_places, whole.pooled_rows);
  inputs.num_rows = inputs.pooled_rows.size(0);
}

}  // namespace

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
  WEFT_CHECK(batch.tokens.num_rows() == whole.ids.size(0), "the samples have {} tokens of {}", batch.tokens.num_rows(),
             whole.ids.size(0));
  const RowOwners owners(batch.tokens);
  const at::Tensor rows = index_tensor(batch.tokens.rows(rank), whole.ids);
  Inputs& own = batch.own;
  own.ids = whole.ids.index_select(0, rows);
  own.positions = whole.positions.index_select(1, rows);
  if (whole.targets.defined()) {
    const SharedRows targets(whole.target_rows, owners, num_ranks, rank);
    own.target_rows = index_tensor(targets.own_places, whole.target_rows);
    own.targets =
        whole.targets.index_select(0, index_tensor(targets.entries[static_cast<size_t>(rank)], whole.targets));
  }
  const auto share_places = [&](const at::Tensor& places, at::Tensor& own_places, RowLists& needed) {
    if (!places.defined()) return;
    const SharedRows shared(places, owners, num_ranks, rank);
    own_places = index_tensor(shared.own_places, places);
    needed = shared.entries;
  };
  share_places(whole.vision_places, own.vision_places, batch.vision_needed);
  share_places(whole.audio_places, own.audio_places, batch.audio_needed);
  if (whole.vision) share_vision(batch, *whole.vision, numbers.vision->merge_size, num_ranks, rank);
  if (whole.audio) share_audio(batch, *whole.audio, num_ranks, rank);
  return batch;
}

}  // namespace weft
