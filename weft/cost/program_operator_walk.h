#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "weft/cost/op_walk.h"
#include "weft/cost/step_walk.h"
#include "weft/meaning/program_exchanges.h"
#include "weft/program/member_groups.h"

namespace weft {

/// What one rank has of a tensor: all dims but the last are rows.
struct PartRows {
  int64_t rows = 1;
  int64_t width = 1;

  int64_t elements() const { return rows * width; }
};

/// What operators of a program's block work on in one run, on one rank.
class OperatorWalk {
 public:
  /// The meaning must outlive it. `are_transposed`: by value, whether a weight's parameter has its dims in the other
  /// order.
  OperatorWalk(const ProgramMeaning& meaning, RunLengths lengths, std::vector<bool> are_transposed,
               const WalkContext& context);

  const ProgramFlow& flow() const { return meaning_.flow(); }
  const Program& program() const { return *meaning_.flow().program; }
  const RunLengths& lengths() const { return lengths_; }
  const WalkContext& context() const { return context_; }
  bool is_layer() const { return meaning_.block().is_layer(); }
  int64_t rank() const { return context_.share.tp_rank.value_or(0); }
  /// Of a number of a value: a class, what is summed up, or an activation.
  int64_t bytes_of(size_t value) const { return bytes_[value]; }
  std::vector<int64_t> part_shape(size_t value, const std::vector<AxisState>& states) const;
  PartRows part(size_t value, const std::vector<AxisState>& states) const;
  /// Of this rank in attention.
  HeadCounts heads(size_t op) const { return meaning_.heads(op, lengths_, rank()); }
  const std::vector<bool>& are_transposed() const { return are_transposed_; }
  /// Whether gradients are added to the parameter's as soon as they are made, because the weight is read as it is held.
  bool is_owned(const Arrival& weight) const { return weight.form.is_plain() && !are_transposed_[weight.value]; }
  /// Of a weight that nobody owns, apart from its parameter's.
  CountedTensor make_gradient(const Arrival& weight) const {
    return context_.make(meaning_.elements(weight, lengths_, rank()) * context_.exact_bytes);
  }

 private:
  const ProgramMeaning& meaning_;
  RunLengths lengths_;
  std::vector<bool> are_transposed_;
  WalkContext context_;
  std::vector<int64_t> bytes_;  ///< by value
};

/// A segment of a block as runner/program_runner computes it: what its operators make, what autograd's nodes keep of
/// that until the backward, and what the backward makes. This is the one place that says what operators of programs
/// keep; tests compare it with runs.
class SegmentWalk {
 public:
  SegmentWalk(const OperatorWalk& operators, const FlowSegment& segment);

  /// What arrived for it becomes its ends.
  std::vector<CountedTensor> forward(std::vector<CountedTensor> leaves);
  /// Gradients of ends become those of leaves that are no weights. Products with weights leave theirs.
  std::vector<CountedTensor> backward(std::vector<CountedTensor> slopes);
  void make_weight_gradients();
  /// Of a weight that is not owned, once all of it is there.
  CountedTensor take_weight_gradient(size_t leaf);

 private:
  using Read = FlowSegment::Read;
  using Back = std::function<void()>;
  /// What a group of operators leaves for the way back, as nodes of autograd's graph do: it is there for as long as
  /// something leads to it that is held, a tensor or an end. Nothing does where a rank makes rows of nothing.
  struct Node {
    std::vector<Back> backs;
    std::vector<std::shared_ptr<Node>> before;
  };

  const Arrival& arrival(size_t leaf) const { return operators_.flow().arrivals[segment_.leaves[leaf]]; }
  const WalkContext& context() const { return operators_.context(); }
  const Operator& op_of(size_t member) const { return operators_.program().operators[segment_.members[member].op]; }
  const std::vector<Read>& reads_of(size_t member) const { return segment_.members[member].reads; }
  const CountedTensor& tensor(const Read& read) const { return read.is_leaf ? leaves_[read.index] : made_[read.index]; }
  bool needs_gradient(const Read& read) const;
  PartRows part(const Read& read) const;
  PartRows result_part(size_t member) const;
  int64_t bytes_of(const Read& read) const;
  CountedTensor make_result(size_t member) const;

  /// Whether gradients go back through it.
  bool leads_back(size_t member) const;
  bool attends(size_t member) const;
  /// Makes the node of a group, before it is walked, and what holds it, behind.
  void begin_node(const MemberGroup& group);
  void end_node(const MemberGroup& group);
  /// How a group of operators is gone through, with its own way back.
  WalkContext own_context(size_t member);
  void walk(const MemberGroup& group);
  CountedTensor walk_product(const MemberGroup& group);
  CountedTensor walk_function(const Read& read, const Operator& op, const WalkContext& own);
  CountedTensor walk_rows_norm(const CountedTensor& x, size_t member, const WalkContext& own);
  void walk_alone(size_t member);
  void walk_sum(size_t member);
  void walk_cut_norm(size_t member);
  void walk_attention_of(size_t member);
  CountedTensor walk_whole_attention(size_t member, int64_t groups);
  /// How keys and values go to all ranks that have rows, and their gradients back.
  struct KeySteps {
    std::vector<Step> there;
    std::vector<Step> back;
    SteppedTensor how;
  };
  KeySteps key_steps(size_t member) const;
  CountedTensor walk_sent_keys(size_t member);
  CountedTensor walk_cut_attention(size_t member);
  void walk_lookup(size_t member);
  void walk_loss(size_t member);
  bool walk_custom(size_t member);
  void walk_factors(size_t member);
  void walk_any(size_t member);
  void set_made(size_t member, CountedTensor made) { made_[op_of(member).result] = std::move(made); }

  /// The way back of a member's result through its own walk to its first operand.
  void return_way(size_t member, const Read& to);
  void add_back(Back back);
  /// Of a norm's weights, which are made with its way back.
  void add_weight_gradients(size_t member);
  CountedTensor take_slope(size_t value) { return std::exchange(of_values_[value], {}); }
  void add_gradient(const Read& read, CountedTensor gradient);

  const OperatorWalk& operators_;
  const FlowSegment& segment_;
  std::vector<CountedTensor> leaves_;
  std::vector<CountedTensor> made_;       ///< by value
  std::vector<bool> needs_;               ///< by value that is made here
  std::vector<CountedTensor> of_values_;  ///< gradients
  std::vector<CountedTensor> of_leaves_;
  std::vector<CountedTensor> of_weights_;  ///< by leaf: gradients of those that are not owned
  std::shared_ptr<WayBack> way_;           ///< of the group that is being walked
  std::shared_ptr<Node> node_;
  std::vector<std::shared_ptr<Node>> nodes_;   ///< by value that is held here
  std::vector<std::shared_ptr<Node>> ends_;    ///< of ends, and of what other ranks were sent
  std::vector<std::weak_ptr<Node>> in_order_;  ///< all
  WeightQueue queue_;
};

}  // namespace weft
