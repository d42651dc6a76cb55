#include "weft/meaning/program_exchanges.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/exchange_calls.h"
#include "weft/program/attends.h"
#include "weft/program/program_ops.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

/// Sums, and gradients of weights, are at least in fp32.
int64_t sum_bytes(int64_t bytes) {
  return std::max<int64_t>(4, bytes);
}

/// Bytes of a number of every value that has a gradient; losses are sums.
std::vector<int64_t> value_bytes(const Program& program, int64_t compute_bytes) {
  std::vector<int64_t> bytes(program.values.size(), compute_bytes);
  for (const Operator& op : program.operators) {
    for (const size_t operand : op.operands) {
      if (program.has_gradient(operand)) bytes[op.result] = std::max(bytes[op.result], bytes[operand]);
    }
    if (op.kind == OperatorKind::kCrossEntropy) bytes[op.result] = sum_bytes(bytes[op.result]);
  }
  return bytes;
}

/// Lists what happens in one block.
class ExchangeList {
 public:
  ExchangeList(const ProgramMeaning& meaning, const ProgramMeaning::Ranks& ranks, const RunLengths& lengths,
               int64_t compute_bytes)
      : meaning_(meaning),
        ranks_(ranks),
        flow_(meaning.flow()),
        lengths_(lengths),
        bytes_(value_bytes(*flow_.program, compute_bytes)) {}

  std::vector<ProgramExchange> list() {
    for (const FlowSegment& segment : flow_.segments) {
      for (const size_t i : segment.begins) add_arrival(flow_.arrivals[i], /*goes_back=*/false);
      add_inside(segment, /*goes_back=*/false);
      add_attentions(segment, /*goes_back=*/false);
    }
    for (size_t i = flow_.segments.size(); i-- > 0;) {
      add_attentions(flow_.segments[i], /*goes_back=*/true);
      add_inside(flow_.segments[i], /*goes_back=*/true);
      for (const bool are_weights : {false, true}) {
        const std::vector<size_t>& begins = flow_.segments[i].begins;
        for (size_t k = begins.size(); k-- > 0;) {
          const Arrival& arrival = flow_.arrivals[begins[k]];
          if (arrival.needs_gradient && arrival.is_weight == are_weights) add_arrival(arrival, /*goes_back=*/true);
        }
      }
    }
    return std::move(list_);
  }

 private:
  void add(std::vector<Step> steps, BlockPass pass, int64_t element_bytes,
           std::optional<size_t> inside_of = std::nullopt) {
    for (Step& step : steps) {
      if (is_collective(step.kind))
        list_.push_back(
            {.pass = pass, .step = std::move(step), .element_bytes = element_bytes, .inside_of = inside_of});
    }
  }

  void add_arrival(const Arrival& arrival, bool goes_back) {
    const auto layout_of = [&](const std::vector<AxisState>& states) {
      return *value_layout(*flow_.program, lengths_, flow_.grid, arrival.value, states);
    };
    const int64_t bytes = bytes_[arrival.value];
    if (!goes_back) return add(arrival.form.forward(layout_of), BlockPass::kForward, bytes);
    add(arrival.form.adjoint(layout_of), arrival.is_weight ? BlockPass::kBackwardWeight : BlockPass::kBackwardInput,
        arrival.is_weight ? sum_bytes(bytes) : bytes);
  }

  /// What an operator does by itself, which stands alone in its segment.
  void add_inside(const FlowSegment& segment, bool goes_back) {
    const FlowSegment::Member& member = segment.members.front();
    if (flow_.inside_axes(member.op).empty()) return;
    const Operator& op = flow_.program->operators[member.op];
    if (goes_back && !flow_.needs_gradient[op.operands[0]]) return;
    const BlockPass pass = goes_back ? BlockPass::kBackwardInput : BlockPass::kForward;
    const int64_t bytes = bytes_[op.operands[0]];
    if (op.kind == OperatorKind::kAttention) {
      const TransitionForm form = keys_form(flow_, member.op);
      const auto layout_of = [&](const std::vector<AxisState>& states) {
        return keys_layout(*flow_.program, member.op, flow_.grid, lengths_, states);
      };
      return add(goes_back ? form.adjoint(layout_of) : form.forward(layout_of), pass, bytes, member.op);
    }
    // On one axis, the rows of what is cut inside are on all ranks.
    const Layout rows = *value_layout(*flow_.program, lengths_, flow_.grid, op.operands[0],
                                      operand_states(*flow_.program, op, flow_.choices[member.op], 0));
    int64_t num_rows = 1;
    for (size_t dim = 0; dim + 1 < rows.num_dims(); ++dim) num_rows *= rows.shape()[dim];
    const InsideSums sums = inside_sums(op);
    for (const int64_t numbers : goes_back ? sums.backward : sums.forward)
      list_.push_back({.pass = pass,
                       .step = {},
                       .summed = numbers * num_rows,
                       .element_bytes = sum_bytes(bytes),
                       .inside_of = member.op});
  }

  /// Attention of rows that other ranks have, too, among the operators of a segment.
  void add_attentions(const FlowSegment& segment, bool goes_back) {
    if (ranks_.ulysses * ranks_.ring == 1) return;
    std::vector<size_t> ops;
    for (const FlowSegment::Member& member : segment.members) {
      if (flow_.program->operators[member.op].kind == OperatorKind::kAttention) ops.push_back(member.op);
    }
    if (goes_back) std::reverse(ops.begin(), ops.end());
    for (const size_t op : ops) add_attention(op, goes_back);
  }

  void add_attention(size_t index, bool goes_back) {
    const Operator& op = flow_.program->operators[index];
    if (goes_back && !flow_.needs_gradient[op.operands[0]]) return;
    std::vector<HeadCounts> heads;
    for (int64_t rank = 0; rank < ranks_.tp; ++rank) heads.push_back(meaning_.heads(index, lengths_, rank));
    std::vector<BlockExchange> exchanges = attention_exchanges(index, ranks_.ulysses, ranks_.ring);
    if (goes_back)
      exchanges = backward_exchanges(exchanges, std::vector<OpGradients>(index + 1, {true, true, true, true}),
                                     BlockRecompute::kKeep);
    for (const BlockExchange& each : exchanges) {
      list_.push_back({.pass = each.pass,
                       .step = {},
                       .element_bytes = bytes_[op.operands[0]],
                       .inside_of = index,
                       .of_rows = ContextExchange{.exchange = each, .attention = op.attention, .heads = heads}});
    }
  }

  const ProgramMeaning& meaning_;
  const ProgramMeaning::Ranks& ranks_;
  const ProgramFlow& flow_;
  const RunLengths& lengths_;
  std::vector<int64_t> bytes_;
  std::vector<ProgramExchange> list_;
};

ProgramFlow make_flow(const BlockProgram& block, const ProgramMeaning::Ranks& ranks,
                      const std::vector<bool>& wants_gradient) {
  const Program& program = block.program;
  std::vector<bool> wants(program.values.size());
  for (size_t value = 0; value < wants.size(); ++value) {
    const ProgramValue::Role role = program.values[value].role;
    wants[value] = role == ProgramValue::Role::kInput ||
                   (is_weight(program, value) && (wants_gradient.empty() || wants_gradient[value]));
  }
  auto flow = flow_of(program, run_strategy(block, ranks.divides_rows), *AxisGrid::create({{"tp", ranks.tp}}), wants,
                      ranks.reduces_first);
  WEFT_CHECK(flow.ok(), "{}", flow.error().message());
  return *std::move(flow);
}

}  // namespace

RunLengths lengths_of(const BlockProgram& block, int64_t samples) {
  const Program& program = block.program;
  auto lengths = changed_lengths(program, {{program.dims[block.rows.sample_dim].name, samples}});
  WEFT_CHECK(lengths.ok(), "{}", lengths.error().message());
  return *std::move(lengths);
}

Program sized_program(const BlockProgram& block, int64_t samples) {
  return sized_program(block, lengths_of(block, samples));
}

Program sized_program(const BlockProgram& block, const RunLengths& lengths) {
  Program program = block.program;
  for (size_t dim = 0; dim < program.dims.size(); ++dim) {
    program.dims[dim].length = lengths[dim].length;
    program.dims[dim].unit = lengths[dim].unit;
  }
  return program;
}

ProgramMeaning::ProgramMeaning(const BlockProgram& block, const Ranks& ranks, const std::vector<bool>& wants_gradient)
    : block_(&block), ranks_(ranks), flow_(make_flow(block, ranks, wants_gradient)) {}

int64_t ProgramMeaning::elements(size_t value, const std::vector<AxisState>& states, const RunLengths& lengths,
                                 std::optional<int64_t> tp_rank) const {
  const Layout layout = *value_layout(block_->program, lengths, flow_.grid, value, states);
  // The first rank never has less than another.
  return layout.num_local_elements(tp_rank.value_or(0));
}

int64_t ProgramMeaning::elements(size_t value, const RunLengths& lengths, std::optional<int64_t> tp_rank) const {
  return elements(value, flow_.states[value], lengths, tp_rank);
}

int64_t ProgramMeaning::elements(const Arrival& arrival, const RunLengths& lengths,
                                 std::optional<int64_t> tp_rank) const {
  return elements(arrival.value, arrival.states, lengths, tp_rank);
}

HeadCounts ProgramMeaning::heads(size_t attention, const RunLengths& lengths, int64_t tp_rank) const {
  const Operator& op = flow_.program->operators[attention];
  const Attention& a = op.attention;
  const std::vector<AxisState> states = operand_states(*flow_.program, op, flow_.choices[attention], 0);
  const std::vector<int64_t> shape =
      value_layout(*flow_.program, lengths, flow_.grid, op.operands[0], states)->local_shape(tp_rank);
  HeadCounts heads{.heads = 0, .kv_heads = 0, .head_dim = a.head_dim};
  if (!has_heads(shape)) return heads;
  const int64_t queries = a.heads / a.kv_heads;
  heads.kv_heads = shape.back() / ((queries + 2) * a.head_dim);
  heads.heads = heads.kv_heads * queries;
  return heads;
}

std::vector<ProgramExchange> ProgramMeaning::exchanges(const RunLengths& lengths, int64_t compute_bytes) const {
  if (ranks_.tp * ranks_.ulysses * ranks_.ring == 1) return {};
  return ExchangeList(*this, ranks_, lengths, compute_bytes).list();
}

std::vector<bool> trained_values(const Block& block, const std::vector<OpGradients>& gradients) {
  std::vector<bool> trained;
  for (const auto& place : weight_places(block.program->program, block.ops))
    trained.push_back(place && (place->is_bias ? gradients[place->op].of_bias : gradients[place->op].of_weight));
  return trained;
}

void add_calls(const ProgramExchange& exchange, const ModulePlace& place, const SharedRows& rows, CallList& calls) {
  const RankGroup& tensor = place.tensor;
  if (const auto& shared = exchange.of_rows) {
    return ExchangeCalls(place, exchange.element_bytes)
        .add_attention(shared->exchange, shared->attention, shared->heads[static_cast<size_t>(tensor.rank)], rows,
                       calls);
  }
  if (!exchange.step) return calls.all_reduce(tensor, exchange.summed, exchange.element_bytes);
  calls.add(tensor, operation_of(exchange.step->kind), traffic_of(*exchange.step, tensor.rank), exchange.element_bytes);
}

}  // namespace weft
