#include "weft/cost/end_walk.h"

#include <algorithm>

#include "weft/base/loss_rows.h"
#include "weft/program/dropping_ops.h"

namespace weft {
namespace {

/// Elements of logits that are looked at together.
int64_t chunk_elements(int64_t rows, int64_t classes, const WalkContext& context) {
  if (context.has_own_kernels()) return 0;
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

namespace {

/// What a loss has in passing for logits of so many rows; going back they become their gradient.
void pass_loss(int64_t rows, int64_t classes, bool goes_back, const WalkContext& context) {
  const int64_t chunk = chunk_elements(rows, classes, context);
  CountedTensor converted;
  if (context.is_half()) converted = context.make(chunk * context.exact_bytes);
  if (goes_back) return;
  const CountedTensor exponentials = context.make(chunk * context.exact_bytes);
  const CountedTensor largest = context.exact_rows_of(rows, 2);
}

/// Calls visit(rows) for rows whose logits are there together.
template <typename Visit>
void each_logits(int64_t rows, int64_t classes, const WalkContext& context, Visit visit) {
  const int64_t step = rows_of_logits(classes, context.count->is_of_processor());
  for (int64_t row = 0; row < rows; row += step) visit(std::min(step, rows - row));
}

/// A head and its loss as head_loss_sum has them. `before` has a way back where its rows have a gradient.
void walk_head_loss(const CountedTensor& x, const SiteRows& rows, const LinearShape& head, const WalkContext& before,
                    const WalkContext& context, const WalkContext& outside) {
  const bool takes_some = head.rows < rows.whole;
  CountedTensor whole = walk_enter(x, rows, before);
  if (takes_some) {
    whole = context.rows_of(head.rows, head.in);
    before.add_step([rows, before](const CountedTensor&) { return before.rows_of(rows.whole, rows.width); });
  }
  const CountedTensor sums = context.exact_rows_of(head.rows, 1);
  CountedTensor places;
  if (context.is_spread()) places = context.make(head.rows * (kIndexBytes + kFlagBytes));
  {
    const CountedTensor own = context.exact_rows_of(head.rows, 2);  // of each part, before they are put together
    each_logits(head.rows, head.out, context, [&](int64_t some) {
      const CountedTensor logits = context.rows_of(some, head.out);
      walk_product(some, head.in, head.out, context);
      pass_loss(some, head.out, /*goes_back=*/false, outside);
    });
    const CountedTensor of_all = context.exact_rows_of(head.rows, 2);
  }
  const CountedTensor kept = context.divides_rows ? x : whole;
  context.add_step([=](const CountedTensor&) {
    CountedTensor again = kept;
    if (context.divides_rows) {
      const CountedTensor gathered = context.rows_of(rows.whole, rows.width);
      again = takes_some ? context.rows_of(head.rows, head.in) : gathered;
    }
    const CountedTensor kept_sums = sums, kept_places = places;
    CountedTensor dx;
    if (context.passes_on) dx = context.rows_of(head.rows, head.in);
    each_logits(head.rows, head.out, context, [&](int64_t some) {
      const CountedTensor logits = context.rows_of(some, head.out);
      walk_product(some, head.in, head.out, context);
      pass_loss(some, head.out, /*goes_back=*/true, outside);
      const auto make_gradient = [some, head, context] { walk_weight_gradient(some, head.in, head.out, context); };
      if (context.trains && context.queue != nullptr) {
        context.queue->push_back([again, logits, make_gradient] { make_gradient(); });
      } else if (context.trains) {
        make_gradient();
      }
      if (context.passes_on) walk_product(some, head.out, head.in, context);
    });
    return dx;
  });
}

}  // namespace

void walk_llm_exit(const WalkedBlock& block, const CountedTensor& x, int64_t targets, bool recomputes_logits,
                   const WalkContext& outside) {
  const Op &norm_op = op_named(block.block, "norm"), &head = op_named(block.block, "logits");
  const auto& norm = std::get<Norm>(norm_op.shape);
  const LocalMatmul local = local_matmul(std::get<Matmul>(head.shape), head.split(), outside.share);
  const WalkContext context = outside.going_back(block.needs_of(head).of_output);
  const WalkContext behind = outside.going_back(block.needs_of(norm_op).of_output);
  const SiteRows sites{context.rows, context.whole_rows, norm.width};
  const LinearShape shape{.rows = targets, .in = local.in, .out = local.out, .adapter = block.adapter_of(head)};
  if (recomputes_logits) {
    const CountedTensor normed = walk_norm(x, context.rows, norm, block.at(norm_op, outside));
    return walk_head_loss(normed, sites, shape, behind,
                          block.at(head, outside).going_back(block.needs_of(head).of_output), context);
  }
  CountedTensor logits;
  {
    const CountedTensor normed = walk_norm(x, context.rows, norm, block.at(norm_op, outside));
    logits = walk_entered_linear(normed, sites, shape, behind, block.at(head, outside));
  }
  const CountedTensor sums = context.exact_rows_of(targets, 1);
  CountedTensor places;
  if (context.is_spread()) places = context.make(targets * (kIndexBytes + kFlagBytes));
  pass_loss(targets, local.out, /*goes_back=*/false, context);
  context.add_step([logits, sums, places, targets, local, context](const CountedTensor&) {
    pass_loss(targets, local.out, /*goes_back=*/true, context);
    return logits;
  });
}

CountedTensor walk_vision_entry(const WalkedBlock& block, const WalkContext& outside) {
  const Op& op = op_named(block.block, "patch_embedding");
  const auto& patches = std::get<Matmul>(op.shape);
  const WalkContext context = block.at(op, outside);
  // Pixels are the batch's.
  CountedTensor x = walk_linear(
      {}, {.rows = context.rows, .in = patches.in, .out = patches.out, .has_bias = patches.bias_elements > 0}, context);
  const Op* positions = find_op(block.block, "positions");
  if (positions == nullptr) return x;
  const WalkContext at_positions = block.at(*positions, outside).going_back(block.needs_of(*positions).of_weight);
  const int64_t rows = context.rows, around = positions->rows.numerator * rows, width = patches.out;
  at_positions.add_step([around, width, at_positions](const CountedTensor& dy) {
    CountedTensor weighed = at_positions.exact_rows_of(around, width);
    if (at_positions.is_half()) weighed = at_positions.rows_of(around, width);
    CountedTensor converted;
    if (!at_positions.adds_in_place) converted = at_positions.exact_rows_of(around, width);
    return dy;
  });
  CountedTensor mixed;
  {
    const CountedTensor found = context.rows_of(around, width);
    CountedTensor weighed;
    {
      // A processor's product has both factors in one type.
      CountedTensor converted;
      if (context.is_half() && context.count->is_of_processor()) converted = context.exact_rows_of(around, width);
      weighed = context.exact_rows_of(around, width);
    }
    mixed = context.exact_rows_of(rows, width);
    if (context.is_half()) mixed = context.rows_of(rows, width);
  }
  return context.rows_of(rows, width);
}

namespace {

/// One merger, whose norm is of patches or of what they are merged into.
CountedTensor walk_merger(const WalkedBlock& block, const std::string& norm_name, const std::string& path,
                          const WalkedLayerRows& x, const SiteRows& rows, bool reorders, const WalkContext& outside) {
  const Op& norm_op = op_named(block.block, norm_name);
  const auto& norm = std::get<Norm>(norm_op.shape);
  const Op &up = op_named(block.block, path + "up"), &down = op_named(block.block, path + "down");
  const LocalMatmul wider = local_matmul(std::get<Matmul>(up.shape), up.split(), outside.share);
  const LocalMatmul narrower = local_matmul(std::get<Matmul>(down.shape), down.split(), outside.share);
  const LinearShape first{
      .rows = rows.whole, .in = wider.in, .out = wider.out, .has_bias = true, .adapter = block.adapter_of(up)};
  CountedTensor wide;
  {
    CountedTensor plain;
    if (norm_op.branches_from >= 0) {
      const int64_t merged = norm.width / (rows.whole > 0 ? outside.whole_rows / rows.whole : 1);
      CountedTensor whole = walk_enter(x.rows, {outside.rows, outside.whole_rows, merged},
                                       outside.going_back(block.needs_of(norm_op).of_input));
      // Patches that are merged lie side by side: columns of wider rows are copied for that, if they were not gathered.
      if (x.is_view && !outside.divides_rows) whole = outside.rows_of(outside.whole_rows, merged);
      const CountedTensor normed = walk_norm(whole, rows.whole, norm, block.at(norm_op, outside));
      plain = walk_linear(normed, first, block.at(up, outside));
    } else {
      const CountedTensor normed = walk_norm(x.rows, outside.rows, norm, block.at(norm_op, outside));
      plain = walk_entered_linear(normed, {outside.rows, outside.whole_rows, norm.width}, first,
                                  outside.going_back(block.needs_of(norm_op).of_output), block.at(up, outside));
    }
    wide = walk_activation(plain, rows.whole, wider.out, 0, outside.going_back(block.needs_of(up).of_output));
  }
  const bool is_spread = outside.is_spread();
  // A bias of its own is added once ranks have summed.
  const WalkContext at_down = block.at(down, outside);
  const WalkContext summed = at_down.going_back(!is_spread || block.has_rows_gradient(down));
  CountedTensor merged = walk_linear(wide,
                                     {.rows = rows.whole,
                                      .in = narrower.in,
                                      .out = narrower.out,
                                      .has_bias = !is_spread,
                                      .adapter = block.adapter_of(down)},
                                     summed);
  if (reorders) {
    summed.add_step([rows, summed](const CountedTensor&) { return summed.rows_of(rows.whole, rows.width); });
    merged = summed.rows_of(rows.whole, rows.width);
  }
  if (!is_spread) return merged;
  return walk_leave_with_bias(std::move(merged), rows, /*has_bias=*/true, summed, at_down);
}

}  // namespace

CountedTensor walk_vision_exit(const WalkedBlock& block, const CountedTensor& x,
                               const std::vector<WalkedLayerRows>& branches, const SiteRows& rows, bool reorders,
                               const WalkContext& context) {
  CountedTensor merged = walk_merger(block, "norm", "merger.", {.rows = x}, rows, reorders, context);
  if (branches.empty()) return merged;
  std::vector<CountedTensor> parts = {std::move(merged)};
  const auto output = std::make_shared<CountedTensor>();  // its gradient, of which each merger has some columns
  bool goes_back = block.needs_of("merger.down").of_output;
  for (size_t branch = 0; branch < branches.size(); ++branch) {
    const std::string path = "branch." + std::to_string(branch) + ".";
    const bool has_gradient = block.needs_of(path + "down").of_output;
    const bool passes_on = block.needs_of(path + "norm").of_input;
    goes_back |= has_gradient;
    context.going_back(has_gradient)
        .add_step([output, passes_on, gradient = branches[branch].gradient](const CountedTensor& dy) {
          if (passes_on) *gradient = dy;
          return *output;
        });
    parts.push_back(walk_merger(block, path + "norm", path, branches[branch], rows, reorders, context));
  }
  context.going_back(goes_back).add_step([output](const CountedTensor& dy) {
    *output = dy;
    return dy;
  });
  const int64_t own = context.divides_rows ? rows.between : rows.whole;
  return context.rows_of(own, std::ssize(parts) * rows.width);
}

CountedTensor walk_tower_entry(const WalkedBlock& block, const WalkContext& outside) {
  const Op &patch_op = op_named(block.block, "patch_embedding"), &class_op = op_named(block.block, "class_token");
  const auto& patches = std::get<Matmul>(patch_op.shape);
  const int64_t rows = outside.rows, width = patches.out;
  const bool of_patches = block.needs_of(patch_op).of_output, of_class = block.needs_of(class_op).of_weight;
  const WalkContext joined = outside.going_back(of_patches || of_class);
  const auto lookup = [&](int64_t entries, bool trains, const WalkContext& context) {
    if (!trains) return;
    context.add_step([entries, width, context](const CountedTensor& dy) {
      CountedTensor converted;
      if (!context.adds_in_place) converted = context.exact_rows_of(entries, width);
      return dy;
    });
  };
  CountedTensor x;
  {
    const CountedTensor made =
        walk_linear({}, {.rows = rows, .in = patches.in, .out = width, .has_bias = patches.bias_elements > 0},
                    block.at(patch_op, outside));
    const CountedTensor is_class = outside.make(rows * kFlagBytes);
    joined.add_step([is_class, of_patches, of_class, rows, width, joined](const CountedTensor&) {
      // The class's rows are summed once both gradients are made.
      CountedTensor of_rows, others, zeros, sum;
      if (of_class) others = joined.rows_of(rows, width), zeros = joined.rows_of(1, 1);
      if (of_patches) of_rows = joined.rows_of(rows, width);
      if (of_class) sum = joined.rows_of(1, width);
      return of_rows;
    });
    x = outside.rows_of(rows, width);
  }
  bool goes_back = of_patches || of_class;
  if (const Op* positions = find_op(block.block, "positions")) {
    const bool trains = block.needs_of(*positions).of_weight;
    goes_back = goes_back || trains;
    lookup(rows, trains, outside.going_back(goes_back));
    const CountedTensor table = outside.rows_of(rows, width);
    x = outside.rows_of(rows, width);
  }
  if (const Op* dropping = find_op(block.block, "embedding.dropout"))
    x = walk_drop(x, rows, width, dropout_of(*dropping), outside.going_back(goes_back));
  const Op* norm = find_op(block.block, "first_norm");
  return norm == nullptr ? x : walk_norm(x, rows, std::get<Norm>(norm->shape), block.at(*norm, outside));
}

CountedTensor walk_tower_exit(const WalkedBlock& block, const CountedTensor& x, int64_t width, const SiteRows& rows,
                              const WalkContext& outside) {
  const Op &up = op_named(block.block, "projector.up"), &down = op_named(block.block, "projector.down");
  const auto &wider_shape = std::get<Matmul>(up.shape), &narrower_shape = std::get<Matmul>(down.shape);
  const LocalMatmul wider = local_matmul(wider_shape, up.split(), outside.share);
  const LocalMatmul narrower = local_matmul(narrower_shape, down.split(), outside.share);
  const int64_t merged = wider_shape.in, all = outside.whole_rows;
  const LinearShape wider_rows{.rows = rows.whole,
                               .in = wider.in,
                               .out = wider.out,
                               .has_bias = wider_shape.bias_elements > 0,
                               .adapter = block.adapter_of(up)};
  CountedTensor wide;
  {
    CountedTensor before = x;
    const Op* first = &up;
    if (const Op* norm = find_op(block.block, "norm"))
      before = walk_norm(x, outside.rows, std::get<Norm>(norm->shape), block.at(*norm, outside));
    CountedTensor plain;
    if (const Op* norm = find_op(block.block, "projector.norm")) {
      first = norm;
      const WalkContext entering = outside.going_back(block.needs_of(*norm).of_input);
      const CountedTensor whole = walk_enter(before, {outside.rows, all, width}, entering);
      entering.add_step([all, width, entering](const CountedTensor&) { return entering.rows_of(all, width); });
      const CountedTensor squares = entering.rows_of(rows.whole, merged);
      const CountedTensor normed =
          walk_norm(squares, rows.whole, std::get<Norm>(norm->shape), block.at(*norm, outside));
      plain = walk_linear(normed, wider_rows, block.at(up, outside));
    } else {
      plain = walk_entered_linear(before, {outside.rows, all, width}, wider_rows,
                                  outside.going_back(block.needs_of(*first).of_input), block.at(up, outside));
    }
    wide = walk_activation(plain, rows.whole, wider.out, 0, outside.going_back(block.needs_of(up).of_output));
  }
  const bool is_spread = outside.is_spread(), has_bias = narrower_shape.bias_elements > 0;
  const WalkContext at_down = block.at(down, outside);
  const WalkContext summed = at_down.going_back(!is_spread || block.has_rows_gradient(down));
  CountedTensor made = walk_linear(wide,
                                   {.rows = rows.whole,
                                    .in = narrower.in,
                                    .out = narrower.out,
                                    .has_bias = has_bias && !is_spread,
                                    .adapter = block.adapter_of(down)},
                                   summed);
  if (!is_spread) return made;
  return walk_leave_with_bias(std::move(made), rows, has_bias, summed, at_down);
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
  return walk_linear(normed,
                     {.rows = own,
                      .in = projection.in,
                      .out = projection.out,
                      .has_bias = true,
                      .adapter = block.adapter_of(projection_op)},
                     block.at(projection_op, outside));
}

}  // namespace weft
