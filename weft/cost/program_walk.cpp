#include "weft/cost/program_walk.h"

#include <algorithm>
#include <utility>

#include "weft/cost/program_operator_walk.h"
#include "weft/cost/step_walk.h"
#include "weft/program/program_ops.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

/// By value of a block's program: whether it is a weight that is trained.
std::vector<bool> trained_weights(const WalkedBlock& block) {
  std::vector<bool> trained;
  for (const auto& place : weight_places(block.block.program->program, block.block.ops)) {
    if (!place) {
      trained.push_back(false);
      continue;
    }
    const OpNeeds& needs = block.needs_of(block.block.ops[place->op]);
    trained.push_back(place->is_bias ? needs.of_bias : needs.of_weight);
  }
  return trained;
}

/// And whether its parameter has its dims in the other order.
std::vector<bool> transposed_weights(const WalkedBlock& block) {
  std::vector<bool> transposed;
  for (const auto& place : weight_places(block.block.program->program, block.block.ops))
    transposed.push_back(place && place->is_transposed);
  return transposed;
}

/// Behind the program of a layer its experts may be trained alone.
bool has_backward(const WalkedBlock& block) {
  if (block.needs.empty()) return true;
  const auto end = block.needs.begin() + static_cast<std::ptrdiff_t>(num_in_program(block.block));
  return std::any_of(block.needs.begin(), end, [](const OpNeeds& needs) { return needs.of_output; });
}

/// A microbatch on its way through a block, as runner/program_runner goes.
class ProgramWalk : public std::enable_shared_from_this<ProgramWalk> {
 public:
  ProgramWalk(const WalkedBlock& block, const WalkContext& context)
      : block_(block.block.program),
        context_(context.going_back(has_backward(block))),
        meaning_(
            *block_,
            {.tp = context.share.tp, .divides_rows = context.divides_rows, .reduces_first = context.element_bytes < 4},
            trained_weights(block)),
        flow_(meaning_.flow()),
        operators_(meaning_, meaning_.lengths(meaning_.samples_of(context.whole_rows)), transposed_weights(block),
                   context_),
        segments_(flow_.segments.size()) {}

  CountedTensor forward(const CountedTensor& x) {
    std::vector<CountedTensor> values(program().values.size()), arrived(flow_.arrivals.size());
    if (block_->carried_in) values[*block_->carried_in] = x;
    for (size_t number = 0; number < flow_.segments.size(); ++number) {
      const FlowSegment& segment = flow_.segments[number];
      for (const size_t i : segment.begins) arrived[i] = arrive(flow_.arrivals[i], values[flow_.arrivals[i].value]);
      for (const size_t value : segment.freed_values) values[value].reset();
      WalkedSegment& own = segments_[number];
      own.walk = std::make_unique<SegmentWalk>(operators_, segment);
      std::vector<CountedTensor> leaves;
      for (const size_t leaf : segment.leaves) {
        leaves.push_back(arrived[leaf]);
        // Parameters hold what came of weights.
        if (flow_.arrivals[leaf].is_weight && goes_back()) own.weights.push_back(arrived[leaf]);
      }
      for (const size_t i : segment.freed_arrivals) arrived[i].reset();
      std::vector<CountedTensor> ends = own.walk->forward(std::move(leaves));
      for (size_t end = 0; end < segment.ends.size(); ++end) values[segment.ends[end]] = std::move(ends[end]);
      if (!goes_back()) own.walk.reset();
    }
    CountedTensor result = flow_.outputs.empty() ? x : values[flow_.outputs.front()];
    if (goes_back())
      context_.add_step([walk = shared_from_this()](const CountedTensor& dy) { return walk->backward(dy); });
    return result;
  }

 private:
  struct WalkedSegment {
    std::unique_ptr<SegmentWalk> walk;
    std::vector<CountedTensor> weights;
  };

  const Program& program() const { return block_->program; }
  bool goes_back() const { return context_.way != nullptr; }
  int64_t rank() const { return operators_.rank(); }

  std::vector<Step> steps(const Arrival& arrival, bool goes_back) const {
    const auto layout_of = [&](const std::vector<AxisState>& states) {
      return *value_layout(program(), operators_.lengths(), flow_.grid, arrival.value, states);
    };
    return goes_back ? arrival.form.adjoint(layout_of) : arrival.form.forward(layout_of);
  }

  CountedTensor arrive(const Arrival& arrival, const CountedTensor& value) const {
    return walk_steps(steps(arrival, false), value,
                      {.position = rank(), .element_bytes = operators_.bytes_of(arrival.value)}, context_);
  }

  CountedTensor backward(const CountedTensor& dy) {
    std::vector<CountedTensor> gradients(program().values.size()), of_arrivals(flow_.arrivals.size());
    if (!flow_.outputs.empty()) gradients[flow_.outputs.front()] = dy;
    const auto kept = std::make_shared<std::vector<CountedTensor>>();  // gradients of weights, until the block's end
    for (size_t number = flow_.segments.size(); number-- > 0;) {
      const FlowSegment& segment = flow_.segments[number];
      std::vector<CountedTensor> slopes;
      for (const size_t end : segment.ends) slopes.push_back(std::exchange(gradients[end], {}));
      std::vector<CountedTensor> found = segments_[number].walk->backward(std::move(slopes));
      for (size_t i = 0; i < found.size(); ++i) {
        CountedTensor& sum = of_arrivals[segment.leaves[i]];
        sum = added_gradient(std::move(sum), std::exchange(found[i], {}), context_);
      }
      for (size_t i = segment.begins.size(); i-- > 0;) {
        const Arrival& arrival = flow_.arrivals[segment.begins[i]];
        if (!arrival.needs_gradient || arrival.is_weight) continue;
        CountedTensor own = std::exchange(of_arrivals[segment.begins[i]], {});
        // What a sum spread lies in one piece from here on.
        const int64_t bytes =
            operators_.part(arrival.value, arrival.states).elements() * operators_.bytes_of(arrival.value);
        if (own.bytes() < bytes) own = context_.make(bytes);
        const SteppedTensor how{
            .position = rank(), .element_bytes = operators_.bytes_of(arrival.value), .may_overwrite = !own.is_shared()};
        CountedTensor& sum = gradients[arrival.value];
        sum = added_gradient(std::move(sum), walk_steps(steps(arrival, true), own, how, context_), context_);
      }
      if (context_.queue == nullptr) collect_weights(number, *kept);
    }
    if (context_.queue != nullptr) {
      context_.queue->push_back([walk = shared_from_this(), kept] {
        for (size_t number = walk->segments_.size(); number-- > 0;) walk->collect_weights(number, *kept);
        walk->add_gradients();
      });
    } else {
      add_gradients();
    }
    return block_->carried_in ? gradients[*block_->carried_in] : CountedTensor();
  }

  void collect_weights(size_t number, std::vector<CountedTensor>& kept) {
    const FlowSegment& segment = flow_.segments[number];
    segments_[number].walk->make_weight_gradients();
    for (size_t leaf = 0; leaf < segment.leaves.size(); ++leaf) {
      const Arrival& arrival = flow_.arrivals[segment.leaves[leaf]];
      if (!arrival.is_weight || !arrival.needs_gradient || operators_.is_owned(arrival)) continue;
      const CountedTensor own = segments_[number].walk->take_weight_gradient(leaf);
      const SteppedTensor how{.position = rank(), .element_bytes = context_.exact_bytes, .may_overwrite = true};
      kept.push_back(walk_steps(steps(arrival, true), own, how, context_));
    }
    segments_[number] = {};
  }

  /// All that were made apart; a parameter whose dims are in the other order takes a copy.
  void add_gradients() const {
    int64_t most_elements = 0;
    const std::vector<bool>& are_transposed = operators_.are_transposed();
    for (size_t value = 0; value < are_transposed.size(); ++value) {
      if (are_transposed[value])
        most_elements = std::max(most_elements, operators_.part(value, flow_.states[value]).elements());
    }
    const CountedTensor copy = context_.make(most_elements * context_.exact_bytes);
  }

  std::shared_ptr<const BlockProgram> block_;
  WalkContext context_;
  ProgramMeaning meaning_;
  const ProgramFlow& flow_;
  OperatorWalk operators_;
  std::vector<WalkedSegment> segments_;
};

}  // namespace

CountedTensor walk_program_block(const WalkedBlock& block, const CountedTensor& x, const WalkContext& context) {
  if (block.block.program->program.operators.empty()) return x;
  return std::make_shared<ProgramWalk>(block, context)->forward(x);
}

}  // namespace weft
