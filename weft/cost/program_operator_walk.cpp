#include "weft/cost/program_operator_walk.h"

#include <algorithm>
#include <array>

#include "weft/program/attends.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

/// Whether LibTorch finds a function's slope from its result: it keeps that, and not what the function read.
bool keeps_result(Activation function) {
  return function == Activation::kRelu || function == Activation::kTanh || function == Activation::kSigmoid;
}

}  // namespace

OperatorWalk::OperatorWalk(const ProgramMeaning& meaning, RunLengths lengths, std::vector<bool> are_transposed,
                           const WalkContext& context)
    : meaning_(meaning), lengths_(std::move(lengths)), are_transposed_(std::move(are_transposed)), context_(context) {
  const Program& all = program();
  bytes_.assign(all.values.size(), context.element_bytes);
  for (const Operator& op : all.operators) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const bool is_number =
          op.kind == OperatorKind::kLookup ? i == 0 : op.kind == OperatorKind::kCrossEntropy && i == 1;
      if (!all.has_gradient(op.operands[i])) bytes_[op.operands[i]] = is_number ? kIndexBytes : context.exact_bytes;
      if (all.has_gradient(op.operands[i])) bytes_[op.result] = std::max(bytes_[op.result], bytes_[op.operands[i]]);
    }
    if (op.kind == OperatorKind::kCrossEntropy) bytes_[op.result] = context.exact_bytes;
  }
}

std::vector<int64_t> OperatorWalk::part_shape(size_t value, const std::vector<AxisState>& states) const {
  return value_layout(program(), lengths_, flow().grid, value, states)->local_shape(rank());
}

PartRows OperatorWalk::part(size_t value, const std::vector<AxisState>& states) const {
  const std::vector<int64_t> shape = part_shape(value, states);
  PartRows part;
  for (size_t dim = 0; dim + 1 < shape.size(); ++dim) part.rows *= shape[dim];
  if (!shape.empty()) part.width = shape.back();
  return part;
}

SegmentWalk::SegmentWalk(const OperatorWalk& operators, const FlowSegment& segment)
    : operators_(operators),
      segment_(segment),
      made_(operators.program().values.size()),
      needs_(made_.size()),
      of_values_(made_.size()),
      of_leaves_(segment.leaves.size()),
      of_weights_(segment.leaves.size()),
      nodes_(made_.size()) {}

bool SegmentWalk::needs_gradient(const Read& read) const {
  return read.is_leaf ? arrival(read.index).needs_gradient : needs_[read.index];
}

bool SegmentWalk::attends(size_t member) const {
  const Read& packed = reads_of(member)[0];
  const ProgramFlow& flow = operators_.flow();
  const std::vector<int64_t> shape =
      packed.is_leaf ? operators_.part_shape(arrival(packed.index).value, arrival(packed.index).states)
                     : operators_.part_shape(packed.index, flow.states[packed.index]);
  return weft::attends(shape, context().shared != nullptr);
}

bool SegmentWalk::leads_back(size_t member) const {
  if (op_of(member).kind == OperatorKind::kAttention && !attends(member)) return false;
  const std::vector<Read>& reads = reads_of(member);
  return std::any_of(reads.begin(), reads.end(), [&](const Read& read) { return needs_gradient(read); });
}

PartRows SegmentWalk::part(const Read& read) const {
  const ProgramFlow& flow = operators_.flow();
  if (!read.is_leaf) return operators_.part(read.index, flow.states[read.index]);
  return operators_.part(arrival(read.index).value, arrival(read.index).states);
}

PartRows SegmentWalk::result_part(size_t member) const {
  return part({.is_leaf = false, .index = op_of(member).result});
}

int64_t SegmentWalk::bytes_of(const Read& read) const {
  return operators_.bytes_of(read.is_leaf ? arrival(read.index).value : read.index);
}

CountedTensor SegmentWalk::make_result(size_t member) const {
  return context().make(result_part(member).elements() * operators_.bytes_of(op_of(member).result));
}

WalkContext SegmentWalk::own_context(size_t member) {
  WalkContext own = context().going_back(needs_[op_of(member).result]);
  if (own.way != nullptr) own.way = way_.get();
  // What is left for later is made with all of the block's.
  if (own.queue != nullptr) own.queue = &queue_;
  own.share = {};  // what a rank has of everything is known here
  own.divides_rows = false;
  const std::vector<Read>& reads = reads_of(member);
  own.passes_on = needs_gradient(reads[0]);
  own.trains = reads.size() > 1 && needs_gradient(reads[1]);
  own.trains_bias = reads.size() > 2 && needs_gradient(reads[2]);
  return own;
}

void SegmentWalk::add_back(Back back) {
  if (context().way != nullptr) node_->backs.push_back(std::move(back));
}

void SegmentWalk::add_gradient(const Read& read, CountedTensor gradient) {
  if (!needs_gradient(read) || !gradient.is_defined()) return;
  CountedTensor& sum = read.is_leaf ? of_leaves_[read.index] : of_values_[read.index];
  sum = added_gradient(std::move(sum), gradient, context());
}

void SegmentWalk::add_weight_gradients(size_t member) {
  add_back([this, member] {
    const std::vector<Read>& reads = reads_of(member);
    for (size_t i = 1; i < reads.size(); ++i) {
      if (!reads[i].is_leaf || !needs_gradient(reads[i]) || operators_.is_owned(arrival(reads[i].index))) continue;
      CountedTensor& gradient = of_weights_[reads[i].index];
      if (!gradient.is_defined()) gradient = operators_.make_gradient(arrival(reads[i].index));
    }
  });
}

void SegmentWalk::return_way(size_t member, const Read& to) {
  add_back([this, value = op_of(member).result, to, way = way_] {
    CountedTensor slope = take_slope(value);
    if (!slope.is_defined() || way->is_empty()) return;
    add_gradient(to, way->run(std::move(slope)));
  });
}

void SegmentWalk::begin_node(const MemberGroup& group) {
  way_ = std::make_shared<WayBack>();
  node_ = std::make_shared<Node>();
  in_order_.push_back(node_);
  for (size_t member = group.first; member <= group.last(); ++member) {
    needs_[op_of(member).result] = leads_back(member);
    for (const Read& read : reads_of(member)) {
      if (!read.is_leaf && nodes_[read.index]) node_->before.push_back(nodes_[read.index]);
    }
  }
}

void SegmentWalk::end_node(const MemberGroup& group) {
  for (size_t member = group.first; member <= group.last(); ++member) {
    const size_t value = op_of(member).result;
    if (needs_[value]) nodes_[value] = node_;
  }
  node_.reset();
}

std::vector<CountedTensor> SegmentWalk::forward(std::vector<CountedTensor> leaves) {
  leaves_ = std::move(leaves);
  std::vector<CountedTensor> ends(segment_.ends.size());
  const std::vector<MemberGroup> groups = groups_of(operators_.flow(), segment_);
  for (size_t i = 0; i < groups.size(); ++i) {
    const MemberGroup& group = groups[i];
    begin_node(group);
    walk(group);
    end_node(group);
    for (size_t end = 0; end < ends.size(); ++end) {
      const size_t value = segment_.ends[end];
      if (!made_[value].is_defined() || ends[end].is_defined()) continue;
      ends[end] = made_[value];
      ends_.push_back(nodes_[value]);
    }
    // What nothing behind reads is let go of.
    const auto is_read_later = [&](const Read& read) {
      for (size_t member = group.last() + 1; member < segment_.members.size(); ++member) {
        for (const Read& later : reads_of(member)) {
          if (later.is_leaf == read.is_leaf && later.index == read.index) return true;
        }
      }
      return false;
    };
    for (size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
      if (!is_read_later({.is_leaf = true, .index = leaf})) leaves_[leaf].reset();
    }
    for (size_t member = 0; member <= group.last(); ++member) {
      const size_t value = op_of(member).result;
      if (is_read_later({.is_leaf = false, .index = value})) continue;
      made_[value].reset();
      nodes_[value].reset();
    }
  }
  way_.reset();
  return ends;
}

std::vector<CountedTensor> SegmentWalk::backward(std::vector<CountedTensor> slopes) {
  for (size_t end = 0; end < segment_.ends.size(); ++end) {
    const size_t value = segment_.ends[end];
    if (!needs_[value]) continue;
    if (!slopes[end].is_defined()) {
      const PartRows part = operators_.part(value, operators_.flow().states[value]);
      slopes[end] = context().make(part.elements() * operators_.bytes_of(value));
    }
    of_values_[value] = std::exchange(slopes[end], {});
  }
  while (!in_order_.empty()) {
    const std::shared_ptr<Node> node = in_order_.back().lock();
    in_order_.pop_back();
    while (node && !node->backs.empty()) {
      const Back back = std::move(node->backs.back());
      node->backs.pop_back();
      back();
    }
  }
  ends_.clear();
  for (size_t leaf = 0; leaf < of_leaves_.size(); ++leaf) {
    const Arrival& own = arrival(leaf);
    CountedTensor& found = of_leaves_[leaf];
    if (!own.needs_gradient) continue;
    if (!own.is_weight) {
      // Zeros, where nothing led back to it.
      if (!found.is_defined())
        found = context().make(part({.is_leaf = true, .index = leaf}).elements() * operators_.bytes_of(own.value));
      continue;
    }
    if (found.is_defined() && !operators_.is_owned(own) && !of_weights_[leaf].is_defined())
      of_weights_[leaf] = context().is_half() ? operators_.make_gradient(own) : found;
    found.reset();
  }
  return std::exchange(of_leaves_, {});
}

void SegmentWalk::make_weight_gradients() {
  while (!queue_.empty()) {
    const std::function<void()> task = std::move(queue_.front());
    queue_.pop_front();
    task();
  }
}

CountedTensor SegmentWalk::take_weight_gradient(size_t leaf) {
  CountedTensor gradient = std::exchange(of_weights_[leaf], {});
  return gradient.is_defined() ? gradient : operators_.make_gradient(arrival(leaf));
}

void SegmentWalk::walk(const MemberGroup& group) {
  switch (group.kind) {
    case MemberGroup::Kind::kProduct:
      return set_made(group.last(), walk_product(group));
    case MemberGroup::Kind::kSumAndNorm: {
      walk_sum(group.first);
      const CountedTensor sum = made_[op_of(group.first).result];
      const Read read{.is_leaf = false, .index = op_of(group.first).result};
      set_made(group.last(), walk_rows_norm(sum, group.last(), own_context(group.last())));
      add_weight_gradients(group.last());
      return return_way(group.last(), read);
    }
    case MemberGroup::Kind::kAlone:
      return walk_alone(group.first);
  }
}

CountedTensor SegmentWalk::walk_product(const MemberGroup& group) {
  const size_t product = group.product();
  const Read& first = reads_of(group.first)[0];
  const Read& rows = reads_of(product)[0];
  WalkContext own = own_context(product);
  own.trains_bias = group.has_bias && needs_gradient(reads_of(group.last())[1]);
  const Read& weight = reads_of(product)[1];
  if (!operators_.is_owned(arrival(weight.index))) own.apart = &of_weights_[weight.index];
  own = own.going_back(needs_[op_of(group.last()).result]);
  if (needs_[op_of(group.last()).result] && context().way != nullptr) own.way = way_.get();
  const PartRows in = part(rows), out = result_part(product);
  const LinearShape shape{.rows = out.rows, .in = in.width, .out = out.width, .has_bias = group.has_bias};
  return_way(group.last(), first);
  if (!group.has_activation) return walk_linear(tensor(rows), shape, own);
  const Operator& activation = op_of(group.first);
  const PartRows wide = part(first);
  const bool is_gated = is_gate(operators_.program(), activation);
  const ProgramDim& inner = operators_.program().dims[operators_.program().values[activation.result].dims.back()];
  const bool is_as_layers =
      !is_gated || (activation.calculation.function == Activation::kSilu && wide.width == 2 * inner.unit);
  WalkContext behind = own_context(group.first);
  if (own.activates_again() && is_as_layers)
    return walk_activated_linear(tensor(first), wide.width, shape, behind, own);
  const CountedTensor inside = walk_function(first, activation, behind);
  return walk_linear(inside, shape, own);
}

/// An activation, or a gate.
CountedTensor SegmentWalk::walk_function(const Read& read, const Operator& op, const WalkContext& own) {
  const PartRows from = part(read), to = part({.is_leaf = false, .index = op.result});
  const CountedTensor& x = tensor(read);
  if (!is_gate(operators_.program(), op)) {
    if (!keeps_result(*op.calculation.function)) return walk_activation(x, from.rows, from.width, 1, own);
    const CountedTensor made = own.rows_of(from.rows, from.width);
    own.add_step([made, from, own](const CountedTensor&) { return own.rows_of(from.rows, from.width); });
    return made;
  }
  const ProgramDim& inner = operators_.program().dims[operators_.program().values[op.result].dims.back()];
  if (op.calculation.function == Activation::kSilu && from.width == 2 * inner.unit)
    return walk_swiglu(x, to.rows, to.width, own);
  if (inner.unit == 1 && own.count->is_of_processor() && own.element_bytes == 4) {
    // Put apart a stretch at a time (activation.cpp).
    const int64_t stretch_bytes = 4 * std::min<int64_t>(to.elements(), 16384);
    own.add_step([kept = x, own, to, stretch_bytes](const CountedTensor&) {
      CountedTensor slopes = own.rows_of(to.rows, 2 * to.width);
      const CountedTensor stretches = own.make(4 * stretch_bytes);
      return slopes;
    });
    CountedTensor result = own.rows_of(to.rows, to.width);
    const CountedTensor stretches = own.make(3 * stretch_bytes);
    return result;
  }
  // Gates are read where they lie; going back, they are made again beside their gradients.
  own.add_step([kept = x, own, to](const CountedTensor&) {
    const CountedTensor slopes = own.rows_of(to.rows, 4 * to.width);
    return own.rows_of(to.rows, 2 * to.width);
  });
  const CountedTensor gates = own.rows_of(to.rows, to.width);
  return own.rows_of(to.rows, to.width);
}

CountedTensor SegmentWalk::walk_rows_norm(const CountedTensor& x, size_t member, const WalkContext& own) {
  const PartRows rows = result_part(member);
  return op_of(member).operands.size() == 3 ? walk_layer_norm(x, rows.rows, rows.width, own)
                                            : walk_rms_norm(x, rows.rows, rows.width, own);
}

void SegmentWalk::walk_sum(size_t member) {
  set_made(member, make_result(member));
  add_back([this, member] {
    const CountedTensor slope = take_slope(op_of(member).result);
    if (!slope.is_defined()) return;
    for (const Read& read : reads_of(member)) {
      // What was broadcast is summed.
      const int64_t bytes = part(read).elements() * bytes_of(read);
      add_gradient(read, bytes == slope.bytes() || !needs_gradient(read) ? slope : context().make(bytes));
    }
  });
}

void SegmentWalk::walk_alone(size_t member) {
  const Operator& op = op_of(member);
  const Read& first = reads_of(member)[0];
  const PartRows in = part(first);
  const WalkContext own = own_context(member);
  const bool is_inside = !operators_.flow().inside_axes(segment_.members[member].op).empty();
  switch (op.kind) {
    case OperatorKind::kAdd:
      return walk_sum(member);
    case OperatorKind::kElementwise:
      if (op.operands.size() > 1) break;
      set_made(member, walk_function(first, op, own));
      return return_way(member, first);
    case OperatorKind::kScale:
      own.add_step([own, bytes = tensor(first).bytes()](const CountedTensor&) { return own.make(bytes); });
      set_made(member, make_result(member));
      return return_way(member, first);
    case OperatorKind::kDropout: {
      const CountedTensor numbers = operators_.is_layer() ? CountedTensor() : own.make(in.rows * kIndexBytes);
      own.add_step([numbers](const CountedTensor& dy) { return dy; });
      set_made(member, walk_drop(tensor(first), in.rows, in.width, op.calculation.dropout, own));
      return return_way(member, first);
    }
    case OperatorKind::kReshape: {
      // Dims that keep their order are looked at otherwise.
      std::vector<size_t> from, to;
      for (const auto& parts : op.rule.operands[0]) from.insert(from.end(), parts.begin(), parts.end());
      for (const auto& parts : op.rule.result) to.insert(to.end(), parts.begin(), parts.end());
      own.add_step([own, copies = from != to](const CountedTensor& dy) { return copies ? own.make(dy.bytes()) : dy; });
      set_made(member, from == to ? tensor(first) : make_result(member));
      return return_way(member, first);
    }
    case OperatorKind::kSum:
      // What it goes back to is spread by whoever reads it.
      own.add_step([](const CountedTensor& dy) { return dy; });
      set_made(member, make_result(member));
      return return_way(member, first);
    case OperatorKind::kNorm:
      if (is_inside) return walk_cut_norm(member);
      if (!is_norm_of_rows(operators_.program(), op)) break;
      set_made(member, walk_rows_norm(tensor(first), member, own));
      add_weight_gradients(member);
      return return_way(member, first);
    case OperatorKind::kAttention:
      return walk_attention_of(member);
    case OperatorKind::kLookup:
      return walk_lookup(member);
    case OperatorKind::kCrossEntropy:
      return walk_loss(member);
    case OperatorKind::kEinsum:  // what is no product of a layer: rows with a weight that lies the other way round
    case OperatorKind::kMultiply:
      if (op.operands.size() != 2) break;
      return walk_factors(member);
    case OperatorKind::kCustom:
      if (walk_custom(member)) return;
      break;
    default:
      break;
  }
  walk_any(member);
}

/// Each factor's gradient reads the other.
void SegmentWalk::walk_factors(size_t member) {
  const Read &first = reads_of(member)[0], &second = reads_of(member)[1];
  const WalkContext own = own_context(member);
  const bool sums = op_of(member).kind == OperatorKind::kEinsum;
  const CountedTensor kept = needs_gradient(second) ? tensor(first) : CountedTensor();
  const CountedTensor other = needs_gradient(first) ? tensor(second) : CountedTensor();
  const PartRows in = part(first), result = result_part(member);
  set_made(member, make_result(member));
  const auto gradient = [this](const Read& read) { return context().make(part(read).elements() * bytes_of(read)); };
  if (!sums) {
    add_back([this, member, first, second, kept, other, gradient] {
      const CountedTensor slope = take_slope(op_of(member).result);
      if (!slope.is_defined()) return;
      // Both products are there before what was broadcast is summed.
      const std::array<Read, 2> reads = {first, second};
      std::array<CountedTensor, 2> products;
      for (size_t i = 0; i < reads.size(); ++i) {
        if (needs_gradient(reads[i])) products[i] = make_result(member);
      }
      for (size_t i = 0; i < reads.size(); ++i) {
        CountedTensor& product = products[i];
        if (product.is_defined() && part(reads[i]).elements() < result_part(member).elements())
          product = gradient(reads[i]);
        add_gradient(reads[i], std::exchange(product, {}));
      }
    });
    return;
  }
  weft::walk_product(result.rows, in.width, result.width, own);
  add_back([this, member, first, second, kept, other, own, in, result, gradient] {
    const CountedTensor slope = take_slope(op_of(member).result);
    if (!slope.is_defined()) return;
    weft::walk_product(result.rows, result.width, in.width, own);
    if (needs_gradient(first)) add_gradient(first, gradient(first));
    if (!needs_gradient(second)) return;
    walk_weight_product(result.rows, in.width, result.width, own);
    add_gradient(second, gradient(second));
  });
}

/// Of operators whose graph nobody has written down: all that it reads and makes, and twice that going back.
void SegmentWalk::walk_any(size_t member) {
  std::vector<CountedTensor> kept;
  int64_t read_bytes = 0;
  for (const Read& read : reads_of(member)) {
    kept.push_back(tensor(read));
    if (needs_gradient(read)) read_bytes += part(read).elements() * bytes_of(read);
  }
  const CountedTensor result = make_result(member);
  kept.push_back(result);
  kept.push_back(context().make(result.bytes() + read_bytes));
  set_made(member, result);
  add_back([this, member, kept, read_bytes] {
    const CountedTensor slope = take_slope(op_of(member).result);
    const CountedTensor passing = context().make(read_bytes + slope.bytes());
    for (const Read& read : reads_of(member))
      add_gradient(read, context().make(needs_gradient(read) ? part(read).elements() * bytes_of(read) : 0));
  });
}

}  // namespace weft
