#include "weft/cost/end_walk.h"

#include <algorithm>

#include "weft/base/loss_rows.h"

namespace weft {
namespace {

/// Elements of logits that are looked at together.
int64_t chunk_elements(int64_t rows, int64_t classes, const WalkContext& context) {
  return std::min(rows, rows_of_loss(classes, context.count->is_of_processor())) * classes;
}

CountedTensor place_media(CountedTensor x, const std::vector<WalkedMedia>& media, bool are_own, int64_t rows,
                          int64_t width, bool needs_gradient, const WalkContext& context) {
  bool is_needed = needs_gradient;
  for (const WalkedMedia& kind : media) {
    if (kind.are_own != are_own || (kind.num_rows == 0 && !kind.needs_gradient)) continue;
    const bool passes_on = is_needed;
    is_needed = is_needed || kind.needs_gradient;
    if (is_needed) {
      context.add_step([kind, passes_on, rows, width, context](const CountedTensor&) {
        CountedTensor of_rows;
        if (passes_on) of_rows = context.rows_of(rows, width);
        if (kind.needs_gradient) *kind.gradient = context.rows_of(kind.num_rows, width);
        return of_rows;
      });
    }
    x = context.rows_of(rows, width);
  }
  return x;
}

}  // namespace

CountedTensor walk_llm_rotary(int64_t rows, int64_t head_dim, bool has_sections, const WalkContext& context) {
  const int64_t pairs = head_dim / 2;
  const CountedTensor places = context.exact_rows_of(has_sections ? 3 : 1, rows);
  CountedTensor by_pair;
  if (has_sections) by_pair = context.exact_rows_of(rows, pairs);
  const CountedTensor angles = context.exact_rows_of(rows, pairs);
  const CountedTensor plain = context.exact_rows_of(rows, 2 * pairs);
  return context.exact_rows_of(rows, 2 * pairs);
}

CountedTensor walk_vision_rotary(int64_t rows, int64_t head_dim, const WalkContext& context) {
  const CountedTensor places = context.exact_rows_of(rows, 2);
  const CountedTensor angles = context.exact_rows_of(rows, head_dim / 2);
  return context.exact_rows_of(rows, head_dim);
}

CountedTensor walk_llm_entry(const WalkedBlock& block, const std::vector<WalkedMedia>& media,
                             const WalkContext& outside) {
  const auto& table = std::get<Lookup>(op_named(block.block, "embedding").shape);
  WalkContext context = outside;
  context.trains = block.needs_of("embedding").of_weight;
  const int64_t rows = context.whole_rows, width = table.width;
  const SiteRows sites{context.rows, rows, width};
  const auto add_lookup = [&](const CountedTensor& ids) {
    if (!context.trains) return;
    context.add_step([ids, rows, width, context](const CountedTensor&) {
      CountedTensor converted;
      if (!context.adds_in_place) converted = context.exact_rows_of(rows, width);
      return CountedTensor();
    });
  };
  const bool has_whole = std::any_of(media.begin(), media.end(), [](const WalkedMedia& kind) { return !kind.are_own; });
  CountedTensor x;
  bool needs_gradient = context.trains;
  for (const WalkedMedia& kind : media) needs_gradient |= !kind.are_own && kind.needs_gradient;
  WalkContext after = context;
  if (!needs_gradient) after.way = nullptr;
  if (!context.is_spread()) {
    add_lookup({});
    x = walk_divide(place_media(context.rows_of(rows, width), media, false, rows, width, context.trains, context),
                    sites, after);
  } else {
    const CountedTensor places = context.make(rows * kIndexBytes);
    const CountedTensor is_elsewhere = context.make(rows * kFlagBytes);
    const CountedTensor ids = context.make(rows * kIndexBytes);
    add_lookup(ids);
    const CountedTensor found = context.rows_of(rows, width);
    if (context.trains) {
      context.add_step(
          [is_elsewhere, rows, width, context](const CountedTensor&) { return context.rows_of(rows, width); });
    }
    const CountedTensor summand = context.rows_of(rows, width);
    WalkContext sum = context;
    if (!context.trains) sum.way = nullptr;
    if (has_whole) {
      const CountedTensor whole = walk_sum(summand, sites, sum);
      x = walk_divide(place_media(whole, media, false, rows, width, context.trains, context), sites, after);
    } else {
      x = walk_leave(summand, sites, sum);
    }
  }
  x = place_media(x, media, true, context.rows, width, needs_gradient, context);
  if (find_op(block.block, "positions") == nullptr) return x;
  for (const WalkedMedia& kind : media) needs_gradient |= kind.needs_gradient;
  const bool trains_positions = block.needs_of("positions").of_weight;
  after = context.going_back(needs_gradient || trains_positions);
  const int64_t own = context.rows;
  after.add_step([trains_positions, own, width, context](const CountedTensor& dy) {
    CountedTensor converted;
    if (trains_positions && !context.adds_in_place) converted = context.exact_rows_of(own, width);
    return dy;
  });
  CountedTensor placed;
  {
    const CountedTensor found = context.rows_of(own, width);
    placed = context.rows_of(own, width);
  }
  return walk_drop(placed, own, width, block.dropout_of("embedding.sum"), after);
}

void walk_llm_exit(const WalkedBlock& block, const CountedTensor& x, int64_t targets, const WalkContext& outside) {
  const Op &norm_op = op_named(block.block, "norm"), &head = op_named(block.block, "logits");
  const auto& norm = std::get<Norm>(norm_op.shape);
  const LocalMatmul local = local_matmul(std::get<Matmul>(head.shape), head.split, outside.share);
  const WalkContext context = outside.going_back(block.needs_of(head).of_output);
  const WalkContext behind = outside.going_back(block.needs_of(norm_op).of_output);
  CountedTensor logits;
  {
    const CountedTensor normed = walk_norm(x, context.rows, norm, block.at(norm_op, outside));
    logits = walk_entered_linear(normed, {context.rows, context.whole_rows, norm.width},
                                 {.rows = targets, .in = local.in, .out = local.out}, behind, block.at(head, outside));
  }
  const int64_t chunk = chunk_elements(targets, local.out, context);
  const CountedTensor sums = context.exact_rows_of(targets, 1);
  CountedTensor places;
  if (context.is_spread()) places = context.make(targets * (kIndexBytes + kFlagBytes));
  {
    CountedTensor converted;
    if (context.is_half()) converted = context.make(chunk * context.exact_bytes);
    const CountedTensor exponentials = context.make(chunk * context.exact_bytes);
    const CountedTensor largest = context.exact_rows_of(targets, 2);
  }
  context.add_step([logits, sums, places, chunk, context](const CountedTensor&) {
    CountedTensor converted;
    if (context.is_half()) converted = context.make(chunk * context.exact_bytes);
    return logits;
  });
}

CountedTensor walk_vision_entry(const WalkedBlock& block, const WalkContext& outside) {
  const Op& op = op_named(block.block, "patch_embedding");
  const auto& patches = std::get<Matmul>(op.shape);
  const WalkContext context = block.at(op, outside);
  // Pixels are the batch's.
  return walk_linear(
      {}, {.rows = context.rows, .in = patches.in, .out = patches.out, .has_bias = patches.bias_elements > 0}, context);
}

CountedTensor walk_vision_exit(const WalkedBlock& block, const CountedTensor& x, const SiteRows& rows, bool reorders,
                               const WalkContext& outside) {
  const Op& norm_op = op_named(block.block, "norm");
  const auto& norm = std::get<Norm>(norm_op.shape);
  const Op &up = op_named(block.block, "merger.up"), &down = op_named(block.block, "merger.down");
  const LocalMatmul wider = local_matmul(std::get<Matmul>(up.shape), up.split, outside.share);
  const LocalMatmul narrower = local_matmul(std::get<Matmul>(down.shape), down.split, outside.share);
  CountedTensor wide;
  {
    const CountedTensor normed = walk_norm(x, outside.rows, norm, block.at(norm_op, outside));
    const CountedTensor plain =
        walk_entered_linear(normed, {outside.rows, outside.whole_rows, norm.width},
                            {.rows = rows.whole, .in = wider.in, .out = wider.out, .has_bias = true},
                            outside.going_back(block.needs_of(norm_op).of_output), block.at(up, outside));
    wide = walk_activation(plain, rows.whole, wider.out, 0, outside.going_back(block.needs_of(up).of_output));
  }
  const OpNeeds& needs = block.needs_of(down);
  const bool is_spread = outside.is_spread();
  // A bias of its own is added once ranks have summed.
  const WalkContext at_down = block.at(down, outside);
  const WalkContext summed = at_down.going_back(!is_spread || needs.of_input || needs.of_weight);
  CountedTensor merged =
      walk_linear(wide, {.rows = rows.whole, .in = narrower.in, .out = narrower.out, .has_bias = !is_spread}, summed);
  if (reorders) {
    summed.add_step([rows, summed](const CountedTensor&) { return summed.rows_of(rows.whole, rows.width); });
    merged = summed.rows_of(rows.whole, rows.width);
  }
  if (!is_spread) return merged;
  const CountedTensor own = walk_leave(merged, rows, summed);
  return walk_add_bias(own, rows.width, at_down);
}

CountedTensor walk_audio_entry(const WalkedBlock& block, int64_t frames, const WalkContext& outside) {
  const Op &first_op = op_named(block.block, "convolution.mel"),
           &second_op = op_named(block.block, "convolution.stride");
  const auto &first = std::get<Matmul>(first_op.shape), &second = std::get<Matmul>(second_op.shape);
  const WalkContext between = outside.going_back(block.needs_of(first_op).of_output);
  const WalkContext context = outside.going_back(block.needs_of(second_op).of_output);
  const int64_t rows = context.rows, width = first.out, bins = first.in / 3;
  // Three taps of every row side by side, of rows with one of zeros behind them.
  const auto gather = [&](int64_t from, int64_t to, int64_t of_width) {
    const CountedTensor padded = context.rows_of(from + 1, of_width);
    const CountedTensor taken = context.rows_of(3 * to, of_width);
    return context.rows_of(3 * to, of_width);
  };
  CountedTensor convolved;
  {
    const CountedTensor taps = gather(frames, frames, bins);
    const CountedTensor plain = walk_linear(taps, {.rows = frames, .in = first.in, .out = width, .has_bias = true},
                                            block.at(first_op, outside));
    convolved = walk_activation(plain, frames, width, 0, between);
  }
  // Where rows are divided, which taps a rank's rows see is worked out for them.
  CountedTensor taps_here;
  if (context.divides_rows) taps_here = context.make(3 * rows * kIndexBytes);
  between.add_step(
      [taps_here, frames, width, context](const CountedTensor&) { return context.rows_of(frames + 1, width); });
  CountedTensor strided;
  {
    const CountedTensor taps = gather(frames, rows, width);
    const CountedTensor plain = walk_linear(taps, {.rows = rows, .in = second.in, .out = width, .has_bias = true},
                                            block.at(second_op, outside));
    strided = walk_activation(plain, rows, width, 0, context);
  }
  const CountedTensor sines = context.exact_rows_of(2 * rows, width);
  return context.rows_of(rows, width);
}

CountedTensor walk_audio_exit(const WalkedBlock& block, const CountedTensor& x, const SiteRows& rows,
                              const WalkContext& outside) {
  const Op &norm_op = op_named(block.block, "norm"), &projection_op = op_named(block.block, "projection");
  const auto& norm = std::get<Norm>(norm_op.shape);
  const auto& projection = std::get<Matmul>(projection_op.shape);
  const WalkContext context = outside.going_back(block.needs_of(norm_op).of_input);
  const CountedTensor whole =
      context.divides_rows ? walk_enter(x, {context.rows, context.whole_rows, norm.width}, context) : x;
  const int64_t all = context.divides_rows ? context.whole_rows : context.rows;
  const int64_t own = rows.between;
  const CountedTensor places = context.make(own * kIndexBytes);
  context.add_step([places, all, norm, own, context](const CountedTensor&) {
    const CountedTensor halves = context.rows_of(own, norm.width);
    const CountedTensor first = context.rows_of(all, norm.width);
    return context.rows_of(all, norm.width);
  });
  CountedTensor pairs;
  {
    const CountedTensor taken = context.rows_of(2 * own, norm.width);
    pairs = context.rows_of(own, norm.width);
  }
  const CountedTensor mean = context.rows_of(own, norm.width);
  const CountedTensor normed = walk_norm(mean, own, norm, block.at(norm_op, outside));
  return walk_linear(normed, {.rows = own, .in = projection.in, .out = projection.out, .has_bias = true},
                     block.at(projection_op, outside));
}

}  // namespace weft
