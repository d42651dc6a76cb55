#include <algorithm>

#include "weft/cost/attention_walk.h"
#include "weft/cost/program_operator_walk.h"
#include "weft/cost/step_walk.h"
#include "weft/program/custom_functions.h"
#include "weft/program/value_layout.h"

// Operators of programs whose graphs have more than a node.

namespace weft {

/// A norm over a width that is cut: composed of LibTorch's operators, with a sum over ranks in between.
void SegmentWalk::walk_cut_norm(size_t member) {
  const Read& first = reads_of(member)[0];
  const PartRows rows = part(first);
  const WalkContext own = own_context(member);
  const bool is_layer_norm = op_of(member).operands.size() == 3;
  const CountedTensor exact = own.is_half() ? own.exact_rows_of(rows.rows, rows.width) : tensor(first);
  { const CountedTensor squares = own.exact_rows_of(rows.rows, rows.width); }
  CountedTensor centred, normed = own.rows_of(rows.rows, rows.width);  // which the weight's gradient reads
  if (is_layer_norm) centred = own.exact_rows_of(rows.rows, rows.width);
  if (own.is_half()) const CountedTensor before = own.exact_rows_of(rows.rows, rows.width);
  const CountedTensor numbers = own.exact_rows_of(rows.rows, 4);
  if (!own.trains) normed.reset();
  own.add_step([=](const CountedTensor&) {
    const CountedTensor kept = exact, kept_centred = centred, kept_normed = normed, kept_numbers = numbers;
    const CountedTensor passing = own.exact_rows_of(rows.rows, 4 * rows.width);
    return own.rows_of(rows.rows, rows.width);
  });
  set_made(member, make_result(member));
  return_way(member, first);
}

void SegmentWalk::walk_attention_of(size_t member) {
  const Operator& op = op_of(member);
  const Attention& a = op.attention;
  const Read& first = reads_of(member)[0];
  const PartRows packed = part(first);
  const size_t index = segment_.members[member].op;
  const HeadCounts heads = operators_.heads(index);
  const int64_t groups = heads.kv_heads;
  const WalkContext own = own_context(member);
  const bool is_cut = !operators_.flow().inside_axes(index).empty();
  if (!attends(member)) return set_made(member, is_cut ? walk_sent_keys(member) : make_result(member));
  if (is_cut) {
    set_made(member, walk_cut_attention(member));
  } else if (operators_.is_layer()) {
    // The layers' own, of all queries before all keys; one group lies like that already.
    if (groups > 1) own.add_step([own](const CountedTensor& of_apart) { return own.make(of_apart.bytes()); });
    const CountedTensor apart = groups > 1 ? own.make(tensor(first).bytes()) : tensor(first);
    WalkContext rows = own;
    rows.whole_rows = packed.rows;
    set_made(member, walk_attention(apart, {.queries = heads.heads, .keys = groups}, a, /*has_rotary=*/false, rows));
  } else {
    set_made(member, walk_whole_attention(member, groups));
  }
  return_way(member, first);
}

/// Samples whose rows are all here.
CountedTensor SegmentWalk::walk_whole_attention(size_t member, int64_t groups) {
  const Operator& op = op_of(member);
  const Attention& a = op.attention;
  const CountedTensor& rows = tensor(reads_of(member)[0]);
  const PartRows packed = part(reads_of(member)[0]);
  const WalkContext own = own_context(member);
  const int64_t queries = a.heads / a.kv_heads;
  const std::vector<size_t>& dims = operators_.program().values[op.result].dims;
  const int64_t length = operators_.lengths()[dims[dims.size() - 2]].length;
  const bool is_on_gpu = !own.count->is_of_processor(), drops = a.dropout > 0;
  const bool has_short_sight = a.mask == Mask::kSliding || a.mask == Mask::kWindowed;
  const bool is_of_groups = !is_on_gpu && !drops && !has_short_sight && dims.size() == 3;
  CountedTensor result = make_result(member);
  std::vector<CountedTensor> kept;
  if (is_on_gpu) kept = {rows, result, own.make(rows.bytes() + result.bytes())};  // as far as its kernels make copies
  const CountedTensor are_seen = own.make(length * length * kFlagBytes);
  int64_t score_bytes = 0;
  if (drops) {
    // Copies of heads, keys and values for each; weights, factors and their products of all pairs of rows of a sample;
    // and which keys are not seen.
    score_bytes = 3 * packed.rows * length * groups * queries * own.element_bytes;
    kept.push_back(own.make(3 * result.bytes() + score_bytes + length * length * kFlagBytes));
  } else {
    // Kernels that do not take groups as they lie read copies of heads, and give their results apart.
    const bool are_views = is_of_groups || queries == 1;
    kept.push_back(are_views || packed.rows == length ? rows : own.make(rows.bytes()));
    kept.push_back(are_views || groups == 1 ? result : own.make(result.bytes()));
    kept.push_back(own.exact_rows_of(packed.rows, groups * queries));
    if (has_short_sight) kept.push_back(own.make(length * length * own.element_bytes));
  }
  own.add_step([own, kept, queries, is_of_groups, score_bytes, read = rows.bytes(),
                made = result.bytes()](const CountedTensor&) {
    const std::vector<CountedTensor> all = kept;
    CountedTensor of_packed = own.make(read);
    // Its own gradient in one piece, those of queries, keys and values by query, and sums of one of these.
    const CountedTensor passing = own.make(4 * made + made / queries + (is_of_groups ? 0 : read) + score_bytes);
    return of_packed;
  });
  return result;
}

SegmentWalk::KeySteps SegmentWalk::key_steps(size_t member) const {
  const ProgramFlow& flow = operators_.flow();
  const size_t index = segment_.members[member].op;
  const TransitionForm form = keys_form(flow, index);
  const auto layout_of = [&](const std::vector<AxisState>& states) {
    return keys_layout(operators_.program(), index, flow.grid, operators_.lengths(), states);
  };
  return {.there = form.forward(layout_of),
          .back = form.adjoint(layout_of),
          .how = {.position = operators_.rank(), .element_bytes = operators_.context().element_bytes}};
}

/// A rank without rows gets everyone's keys all the same, and sends gradients back that are zero.
CountedTensor SegmentWalk::walk_sent_keys(size_t member) {
  const WalkContext own = own_context(member);
  const KeySteps steps = key_steps(member);
  const Read& first = reads_of(member)[0];
  const int64_t key_bytes = walk_steps(steps.there, own.make(0), steps.how, own).bytes();
  if (needs_gradient(first)) {
    add_back([this, first, steps, own, key_bytes] {
      const CountedTensor returned = walk_steps(steps.back, own.make(key_bytes), steps.how, own);
      add_gradient(first, own.make(part(first).elements() * bytes_of(first)));
    });
    ends_.push_back(node_);
  }
  return make_result(member);
}

/// Keys and values of all rows are gathered, and every sequence of which this rank has rows is attended to by itself.
CountedTensor SegmentWalk::walk_cut_attention(size_t member) {
  const Operator& op = op_of(member);
  const Attention& a = op.attention;
  const Read& first = reads_of(member)[0];
  const ProgramFlow& flow = operators_.flow();
  const Program& program = operators_.program();
  const WalkContext own = own_context(member);
  const PartRows packed = part(first), result = result_part(member);
  const int64_t queries = a.heads / a.kv_heads, heads = result.width / a.head_dim;
  const KeySteps steps = key_steps(member);
  CountedTensor sent = own.rows_of(packed.rows, heads / queries * 2 * a.head_dim);
  const CountedTensor keys = walk_steps(steps.there, sent, steps.how, own);
  sent.reset();
  // What is kept of every sequence.
  std::vector<CountedTensor> kept;
  const Box box = value_layout(program, operators_.lengths(), flow.grid, op.operands[0],
                               operand_states(program, op, flow.choices[segment_.members[member].op], 0))
                      ->box(operators_.rank());
  const Range rows = box[box.size() - 2];
  std::vector<int64_t> lengths;
  if (operators_.is_layer() && own.segments) lengths = *own.segments;
  if (lengths.empty()) lengths = {operators_.lengths()[program.values[op.operands[0]].dims[box.size() - 2]].length};
  const int64_t samples = packed.rows / std::max<int64_t>(1, rows.size());
  // Weights that are dropped are of products of copies of heads, with keys and values for each. Kernels read copies of
  // several groups of several samples.
  const bool has_copies = a.dropout > 0 && (queries > 1 || samples > 1);
  const bool has_groups_apart = a.dropout == 0 && queries > 1 && samples > 1 && heads > queries;
  if (has_groups_apart) {
    kept = {own.rows_of(packed.rows, result.width), own.make(keys.bytes())};
  } else if (!has_copies) {
    kept = {tensor(first), keys};
  }
  int64_t begin = 0, longest = 0, most_scores = 0;
  for (const int64_t length : lengths) {
    const int64_t mine = std::min(begin + length, rows.end) - std::max(begin, rows.begin);
    begin += length;
    if (mine <= 0) continue;
    longest = std::max(longest, length);
    // A layer's segments are its windows.
    const bool hides = a.mask == Mask::kSliding || (a.mask == Mask::kWindowed && !operators_.is_layer()) ||
                       (a.mask == Mask::kCausal && mine < length);
    if (a.dropout > 0) {
      // Weights, factors and their products, and which keys are not seen. On the way there are scores that are not
      // divided or hidden yet, and factors as they are drawn; going back as many gradients.
      const int64_t pairs = samples * mine * length * heads;
      most_scores = std::max(most_scores, pairs * (5 * own.element_bytes + 2 * own.exact_bytes));
      own.count->pass(pairs * (6 * own.element_bytes + 2 * own.exact_bytes));
      kept.push_back(own.make(3 * pairs * own.element_bytes + mine * length * kFlagBytes));
      if (has_copies) kept.push_back(own.rows_of(samples * (mine + 2 * length), result.width));
    } else if (hides) {
      const CountedTensor are_seen = own.make(mine * length * kFlagBytes);
      kept.push_back(own.make(mine * length * own.element_bytes));
    }
    kept.push_back(own.rows_of(samples * mine, result.width));
    kept.push_back(own.exact_rows_of(samples * mine, heads));
  }
  const bool is_whole = operators_.is_layer();
  own.add_step([=, read = tensor(first).bytes(), key_bytes = keys.bytes()](const CountedTensor&) {
    const std::vector<CountedTensor> all = kept;
    own.count->pass(most_scores);
    CountedTensor of_keys;
    {
      const CountedTensor of_sequence = own.rows_of(samples * longest, 2 * result.width);
      const CountedTensor in_order = own.make(key_bytes * (is_whole ? 2 : 1));
      of_keys = own.make(key_bytes);
    }
    const CountedTensor of_queries = own.rows_of(packed.rows, result.width);
    const CountedTensor returned = walk_steps(steps.back, of_keys, steps.how, own);
    const CountedTensor parts = own.make(read);
    return own.make(read);
  });
  const CountedTensor apart = own.rows_of(result.rows, result.width);
  return own.rows_of(result.rows, result.width);
}

void SegmentWalk::walk_lookup(size_t member) {
  const Read ids = reads_of(member)[0], table = reads_of(member)[1];
  const WalkContext own = own_context(member);
  const int64_t numbers = part(ids).elements();
  const CountedTensor places = own.make(numbers * (kIndexBytes + kFlagBytes));
  {
    const CountedTensor rows = make_result(member), passing = own.make(numbers * 2 * kIndexBytes);
    set_made(member, make_result(member));
  }
  if (!needs_gradient(table)) return;
  add_back([this, member, table, places] {
    const CountedTensor kept = places, slope = take_slope(op_of(member).result);
    CountedTensor of_table;
    {
      const CountedTensor of_rows = context().make(2 * slope.bytes());
      of_table = context().make(part(table).elements() * bytes_of(table));
    }
    add_gradient(table, of_table);
  });
}

void SegmentWalk::walk_loss(size_t member) {
  const Read& first = reads_of(member)[0];
  const PartRows logits = part(first);
  const WalkContext own = own_context(member);
  const auto exact = [own, logits] { return own.exact_rows_of(logits.rows, logits.width); };
  // Places, which of them are here and have a target, and two sums.
  const CountedTensor numbers = own.make(logits.rows * (kIndexBytes + 2 * own.exact_bytes + 2 * kFlagBytes));
  CountedTensor powers;
  {
    const CountedTensor converted = own.is_half() ? exact() : CountedTensor();
    powers = exact();
  }
  const CountedTensor passing = own.make(logits.rows * (2 * kIndexBytes + 6 * own.exact_bytes));
  own.add_step([=](const CountedTensor&) {
    const CountedTensor kept = powers, kept_numbers = numbers;
    const CountedTensor sum = exact();
    return own.is_half() ? own.rows_of(logits.rows, logits.width) : sum;
  });
  set_made(member, make_result(member));
  return_way(member, first);
}

/// Whether it is one of the functions that programs of models call.
bool SegmentWalk::walk_custom(size_t member) {
  const Operator& op = op_of(member);
  const std::string& function = function_of(op);
  const Read& first = reads_of(member)[0];
  const PartRows packed = part(first);
  const WalkContext own = own_context(member);
  const CountedTensor& x = tensor(first);
  const bool owns = owns_first(operators_.flow(), segment_.members[member].op);
  const int64_t head_dim = op.attention.head_dim;
  const int64_t queries = op.attention.kv_heads > 0 ? op.attention.heads / op.attention.kv_heads : 0;
  const int64_t groups = head_dim > 0 ? packed.width / ((queries + 2) * head_dim) : 0;
  if (function == "merge_rows") {
    own.add_step([](const CountedTensor& dy) { return dy; });
    set_made(member, x);
  } else if ((function == "rotary" || function == "rotary_table") && packed.elements() == 0) {
    own.add_step([](const CountedTensor& dy) { return dy; });
    set_made(member, make_result(member));
  } else if (function == "rotary" || function == "rotary_table") {
    const int64_t turning = groups * (queries + 1) * head_dim;
    CountedTensor tables = tensor(reads_of(member)[1]);
    if (function == "rotary") tables = own.exact_rows_of(packed.rows, head_dim);
    own.add_step([=](const CountedTensor& dy) {
      const CountedTensor kept = tables;
      // The caller's hold of it is one.
      CountedTensor turned = dy.num_references() > 1 ? own.make(dy.bytes()) : dy;
      walk_rotation(packed.rows, turning, own);
      return turned;
    });
    set_made(member, owns ? x : own.make(x.bytes()));
    walk_rotation(packed.rows, turning, own);
  } else if (function == "norm_queries" || function == "norm_keys") {
    const int64_t count = groups * (function == "norm_queries" ? queries : 1);
    const int64_t width = operators_.lengths()[operators_.program().values[op.operands[1]].dims[0]].length;
    if (width == head_dim && op.attention.kv_heads * (function == "norm_queries" ? queries : 1) > 1) {
      set_made(member, walk_norm_group_heads(x, packed.rows, count, head_dim, owns, own));
    } else {
      // All heads of a row together, composed of LibTorch's operators.
      const PartRows normed{.rows = packed.rows, .width = count * head_dim};
      // Below fp32 a copy of the heads is kept instead of the rows.
      const CountedTensor exact = own.is_half() ? own.exact_rows_of(normed.rows, normed.width) : x;
      const CountedTensor before = own.rows_of(normed.rows, normed.width), scale = own.exact_rows_of(normed.rows, 1);
      const CountedTensor of_weight = own.trains ? before : CountedTensor();  // whose gradient reads it
      { const CountedTensor passing = own.exact_rows_of(normed.rows, 2 * normed.width); }
      own.add_step([=, bytes = x.bytes()](const CountedTensor&) {
        const CountedTensor kept = exact, kept_normed = of_weight, kept_scale = scale;
        const CountedTensor passing = own.exact_rows_of(normed.rows, 4 * normed.width), parts = own.make(bytes);
        return own.make(bytes);
      });
      set_made(member, make_result(member));
    }
    const Read weight = reads_of(member)[1];
    if (needs_gradient(weight)) {
      add_back([this, weight] { add_gradient(weight, context().make(part(weight).elements() * bytes_of(weight))); });
    }
  } else {
    return false;
  }
  return_way(member, first);
  return true;
}

}  // namespace weft
