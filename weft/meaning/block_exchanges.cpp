#include "weft/meaning/block_exchanges.h"

#include <optional>

#include "weft/base/check.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/op_share.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

/// Lists the exchanges of one forward.
class ForwardList {
 public:
  ForwardList(const Module& module, const Block& block, const BlockSharing& sharing)
      : module_(module), block_(block), sharing_(sharing) {}

  std::vector<BlockExchange> list() {
    list_.reserve(8);
    for (size_t i = num_in_program(block_); i < block_.ops.size(); ++i) add(i);
    // Rows that are pooled may lie on two ranks: they become whole, and each rank pools its own.
    if (!changes_rows_ && pooling_ && sharing_.divides_rows && sharing_.tp > 1)
      list_.insert(list_.begin(), enter_before(*pooling_, /*happens_again=*/false));
    return std::move(list_);
  }

 private:
  void add(size_t i) {
    const Op& op = block_.ops[i];
    if (is_adapter(op)) return;  // it works on what its product takes in, and adds to what that gives
    if (is_router(op)) return add_router(i);
    if (std::holds_alternative<Attention>(op.shape)) return add_attention(i);
    if (std::holds_alternative<Norm>(op.shape) && op.has_whole_rows) return add_whole_norm(i);
    if (std::holds_alternative<CrossEntropy>(op.shape) && sharing_.tp > 1)
      list_.push_back({.kind = ExchangeKind::kLoss, .op = i});
    if (const auto* matmul = std::get_if<Matmul>(&op.shape)) add_product(i, *matmul);
    const bool pools = op.split() == TensorSplit::kWhole && has_output_rows(op);
    if (pools && !pooling_) pooling_ = i;
  }

  bool has_output_rows(const Op& op) const { return op.rows == module_.output_rows && op.rows != RowsPerToken{}; }

  BlockExchange enter_before(size_t i, bool happens_again) const {
    return {.kind = ExchangeKind::kRows,
            .op = i,
            .change = RowChange::kEnter,
            .columns = module_.width,
            .happens_again = happens_again,
            .weight_op = is_adapted(block_, i) ? i + 1 : i};
  }

  /// Rows become whole before they choose experts, and copies of them go there.
  void add_router(size_t i) {
    size_t experts = i + 1;
    while (block_.ops[experts].split() != TensorSplit::kColumn) ++experts;
    if (sharing_.tp > 1 && !sharing_.experts_over_tp) list_.push_back(enter_before(experts, /*happens_again=*/false));
    changes_rows_ = true;
    if (sharing_.balances_experts) list_.push_back({.kind = ExchangeKind::kBalance, .op = i});
    if (sharing_.ep > 1) list_.push_back({.kind = ExchangeKind::kExpertCounts, .op = i});
  }

  void add_attention(size_t i) {
    for (const BlockExchange& each : attention_exchanges(i, sharing_.ulysses, sharing_.ring)) list_.push_back(each);
  }

  /// Rows become whole and are merged before it, and stay so for the product behind it.
  void add_whole_norm(size_t i) {
    changes_rows_ = true;
    if (sharing_.tp > 1) list_.push_back(enter_before(i, /*happens_again=*/false));
    are_whole_ = true;
  }

  void add_product(size_t i, const Matmul& matmul) {
    const Op& op = block_.ops[i];
    const bool is_of_experts = matmul.experts > 1;
    if (op.split() == TensorSplit::kColumn) {
      changes_rows_ = true;
      if (is_of_experts && sharing_.ep > 1) list_.push_back({.kind = ExchangeKind::kExpertRows, .op = i});
      if (!is_of_experts && sharing_.tp > 1 && !are_whole_) list_.push_back(enter_before(i, sharing_.divides_rows));
      are_whole_ = false;
    }
    if (op.split() == TensorSplit::kRow) {
      changes_rows_ = true;
      if (is_of_experts && sharing_.ep > 1)
        list_.push_back({.kind = ExchangeKind::kExpertRows,
                         .goes_back = true,
                         .op = i,
                         .weight_op = is_adapted(block_, i) ? i + 3 : i});
      if (sharing_.tp > 1 && !has_whole_experts(op, sharing_.experts_over_tp))
        list_.push_back({.kind = ExchangeKind::kRows,
                         .op = i,
                         .change = RowChange::kLeave,
                         .has_outputs = !is_of_experts && has_output_rows(op),
                         .columns = matmul.out});
    }
  }

  const Module& module_;
  const Block& block_;
  const BlockSharing& sharing_;
  std::vector<BlockExchange> list_;
  std::optional<size_t> pooling_;
  bool changes_rows_ = false;
  bool are_whole_ = false;  ///< the rows that the next product takes in
};

BlockExchange in_pass(BlockExchange exchange, BlockPass pass, bool goes_back) {
  exchange.pass = pass;
  exchange.goes_back = goes_back;
  return exchange;
}

/// Whether gradients come back to where a forward exchanged something.
bool comes_back(const BlockExchange& exchange, const std::vector<OpGradients>& gradients) {
  const OpGradients& op = gradients[exchange.op];
  switch (exchange.kind) {
    case ExchangeKind::kRows:
      // Of rows that become whole for an operator, or of what it made. A bias is added once ranks have summed: where it
      // alone is trained, nothing goes back further.
      if (exchange.change != RowChange::kLeave && exchange.change != RowChange::kSum) return op.of_input;
      return op.of_input || op.of_weight || (op.of_output && !op.of_bias);
    case ExchangeKind::kHeads:
    case ExchangeKind::kKeys:
      return op.of_output;
    case ExchangeKind::kExpertRows:
      // A router that is trained has gradients of its weights, not of the rows that experts give.
      return exchange.goes_back ? gradients.at(exchange.weight_op + 1).of_input : op.of_input;
    case ExchangeKind::kMediaRows:
      return op.of_output;
    case ExchangeKind::kLoss:
    case ExchangeKind::kBalance:
    case ExchangeKind::kExpertCounts:
      return false;
  }
  WEFT_CHECK(false, "unknown exchange {}", static_cast<int>(exchange.kind));
}

}  // namespace

BlockSharing sharing_of(const ModulePlan& module, bool balances_experts) {
  return {.tp = module.tp,
          .ulysses = module.cp_ulysses,
          .ring = module.cp / module.cp_ulysses,
          .ep = module.ep,
          .divides_rows = divides_rows(module),
          .experts_over_tp = module.experts_over_tp,
          .balances_experts = balances_experts};
}

std::vector<BlockExchange> forward_exchanges(const Module& module, const Block& block, const BlockSharing& sharing) {
  return ForwardList(module, block, sharing).list();
}

std::vector<BlockExchange> attention_exchanges(size_t op, int64_t ulysses, int64_t ring) {
  std::vector<BlockExchange> list;
  if (ulysses > 1) list.push_back({.kind = ExchangeKind::kHeads, .op = op, .has_keys = true});
  if (ring > 1) list.push_back({.kind = ExchangeKind::kKeys, .op = op});
  if (ulysses > 1) list.push_back({.kind = ExchangeKind::kHeads, .goes_back = true, .op = op});
  return list;
}

bool come_whole(const ModulePlan& llm, const ModulePlan& encoder) {
  return encoder.is_in_pipeline() || !llm.sequence_parallel || llm.tp == 1;
}

EntryPlacing entry_placing(const Plan& plan, const Trainable& trainable, const std::array<bool, 3>& has_rows) {
  EntryPlacing placing{.needs_gradient = trainable.trains_table()};
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_encoder() || !has_rows[static_cast<size_t>(module.kind)]) continue;
    // Rows that come divided are placed when the others have been divided.
    if (!come_whole(plan.llm(), module)) continue;
    placing.places_whole_rows = true;
    placing.needs_gradient |= trainable.gives_gradients(module);
  }
  return placing;
}

std::vector<BlockExchange> entry_exchanges(const Module& llm, const BlockSharing& sharing, bool places_whole_rows) {
  if (sharing.tp == 1) return {};
  const auto change = [&](RowChange which) {
    return BlockExchange{.kind = ExchangeKind::kRows, .change = which, .columns = llm.width};
  };
  if (!places_whole_rows) return {change(RowChange::kLeave)};
  return {change(RowChange::kSum), change(RowChange::kDivide)};
}

OutputUse output_use(const Plan& plan, const ModulePlan& encoder) {
  const Module* spec = plan.model.find(encoder.kind);
  const bool has_parts = spec != nullptr && spec->output_parts > 1;
  const bool is_in_pipeline = encoder.is_in_pipeline();
  return {.is_in_pipeline = is_in_pipeline, .divides_parts = is_in_pipeline && has_parts && divides_rows(plan.llm())};
}

std::vector<BlockExchange> output_exchanges(const Module& encoder, const BlockSharing& sharing, const OutputUse& use) {
  const auto change = [&](RowChange which, int64_t columns) {
    return BlockExchange{.kind = ExchangeKind::kRows,
                         .op = encoder.exit.ops.size() - 1,
                         .change = which,
                         .has_outputs = true,
                         .columns = columns};
  };
  const bool is_apart = use.divides_parts && sharing.tp > 1;
  const int64_t first = is_apart ? encoder.output_width / encoder.output_parts : encoder.output_width;
  std::vector<BlockExchange> list;
  if (sharing.divides_rows) list.push_back(change(RowChange::kGather, first));
  // Gradients of the others are then of some rows alone, and are summed on their way back.
  if (is_apart) list.push_back(change(RowChange::kEnter, encoder.output_width - first));
  if (use.is_in_pipeline && sharing.ulysses * sharing.ring > 1) {
    list.push_back(
        {.kind = ExchangeKind::kMediaRows, .op = encoder.exit.ops.size() - 1, .columns = encoder.output_width});
  }
  return list;
}

std::vector<BlockExchange> backward_exchanges(const std::vector<BlockExchange>& forward,
                                              const std::vector<OpGradients>& gradients, BlockRecompute recompute) {
  std::vector<BlockExchange> list;
  list.reserve(2 * forward.size());
  if (recompute == BlockRecompute::kFull) {
    for (const BlockExchange& each : forward) list.push_back(in_pass(each, BlockPass::kBackwardInput, each.goes_back));
  }
  for (size_t i = forward.size(); i-- > 0;) {
    const BlockExchange& each = forward[i];
    // The attention of one operator runs again before its gradients come in: of its exchanges the ring's alone, since
    // the rows and heads that it works on are kept.
    const bool is_last_of_core = each.kind == ExchangeKind::kHeads ? each.goes_back : each.kind == ExchangeKind::kKeys;
    const bool is_first_seen = is_last_of_core && (i + 1 == forward.size() || forward[i + 1].op != each.op);
    if (recompute == BlockRecompute::kAttention && is_first_seen && gradients[each.op].of_output) {
      for (const BlockExchange& other : forward) {
        if (other.kind == ExchangeKind::kKeys && other.op == each.op)
          list.push_back(in_pass(other, BlockPass::kBackwardInput, false));
      }
    }
    // Rows become whole again for logits, and the weight's gradient takes these.
    if (each.happens_again && recompute == BlockRecompute::kLogits)
      list.push_back(in_pass(each, BlockPass::kBackwardInput, false));
    else if (each.happens_again && gradients[each.weight_op].of_weight)
      list.push_back(in_pass(each, BlockPass::kBackwardWeight, false));
    if (comes_back(each, gradients)) list.push_back(in_pass(each, BlockPass::kBackwardInput, !each.goes_back));
  }
  return list;
}

}  // namespace weft
