#include "weft/profile/measurement_fields.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/module_kinds.h"

namespace weft {
namespace {

const std::array<std::string, 2> kAttention = {"fused", "unfused"};
const std::array<std::string, 2> kLinks = {"within_node", "between_nodes"};
const std::array<std::string, 5> kCollectives = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"};
constexpr NumberRange kPassMsRange{0, 1e7};
constexpr NumberRange kMeasuredMsRange{1e-6, 1e7};
constexpr NumberRange kTokenRange{1, 1e9};
constexpr IntegerRange kDegreeRange{1, 1 << 20};

constexpr NumberRange kBytesRange{0, 1e15};
constexpr IntegerRange kRunsRange{0, 1'000'000'000};
constexpr NumberRange kSpreadRange{0, 1e6};

Sureness read_sureness(Fields& fields) {
  return {.runs = fields.integer_or("runs", 0, kRunsRange),
          .spread_percent = fields.number_or("spread_percent", 0, kSpreadRange)};
}

BlockShape read_shape(Fields& fields) {
  BlockShape shape;
  shape.module = kModuleKinds[fields.choice("module", module_names())];
  shape.block = fields.text("block");
  shape.strategy = fields.text_or("strategy", "");
  shape.tp = fields.integer_or("tp", 1, kDegreeRange);
  shape.cp = fields.integer_or("cp", 1, kDegreeRange);
  shape.cp_ulysses = fields.integer_or("cp_ulysses", 1, kDegreeRange);
  shape.ep = fields.integer_or("ep", 1, kDegreeRange);
  shape.sequence_parallel = fields.flag_or("sequence_parallel", false);
  shape.experts_over_tp = fields.flag_or("experts_over_tp", false);
  shape.attention = static_cast<AttentionKernel>(fields.choice_or("attention", 0, kAttention));
  shape.busy_ranks = fields.integer_or("busy_ranks", 1, kDegreeRange);
  shape.tokens = fields.number("tokens", kTokenRange);
  shape.sequence_tokens = fields.number("sequence_tokens", kTokenRange);
  if (shape.sequence_tokens > shape.tokens) {
    fields.complain("sequence_tokens",
                    fmt::format("is {}, but there are only {} tokens", shape.sequence_tokens, shape.tokens));
  }
  if (shape.cp % shape.cp_ulysses != 0) {
    fields.complain("cp_ulysses", fmt::format("is {}, which does not divide cp {}", shape.cp_ulysses, shape.cp));
  }
  return shape;
}

}  // namespace

BlockMeasurement read_block(Fields& fields) {
  BlockMeasurement block;
  block.shape = read_shape(fields);
  block.forward_ms = fields.number("forward_ms", kMeasuredMsRange);
  block.backward_input_ms = fields.number("backward_input_ms", kPassMsRange);
  block.backward_weight_ms = fields.number("backward_weight_ms", kPassMsRange);
  block.attention_ms = fields.number_or("attention_ms", 0, kPassMsRange);
  block.kept_bytes = fields.number_or("kept_bytes", 0, kBytesRange);
  block.forward_peak_bytes = fields.number_or("forward_peak_bytes", 0, kBytesRange);
  block.backward_peak_bytes = fields.number_or("backward_peak_bytes", 0, kBytesRange);
  block.sureness = read_sureness(fields);
  return block;
}

OperatorMeasurement read_operator(Fields& fields) {
  OperatorMeasurement op;
  op.part.op = fields.text("operator");
  op.part.parts = fields.text("parts");
  if (!op.part.parts.empty() && !lengths_in(op.part.parts))
    fields.complain("parts", fmt::format("is {}, lengths are written like '2x128x512, 704x512 -> 2x128x704'",
                                         in_quotes(op.part.parts)));
  op.part.inside = fields.text_or("inside", "");
  op.busy_ranks = fields.integer_or("busy_ranks", 1, kDegreeRange);
  op.forward_ms = fields.number("forward_ms", kMeasuredMsRange);
  op.backward_input_ms = fields.number("backward_input_ms", kPassMsRange);
  op.backward_weight_ms = fields.number("backward_weight_ms", kPassMsRange);
  op.sureness = read_sureness(fields);
  return op;
}

UpdateMeasurement read_update(Fields& fields) {
  UpdateMeasurement update;
  update.busy_ranks = fields.integer_or("busy_ranks", 1, kDegreeRange);
  update.elements = fields.number("elements", {1, 1e15});
  update.ms = fields.number("ms", kMeasuredMsRange);
  update.sureness = read_sureness(fields);
  return update;
}

LinkMeasurement read_link(Fields& fields) {
  LinkMeasurement link;
  link.is_between_nodes = fields.choice("link", kLinks) == 1;
  link.collective = kCollectives[fields.choice("collective", kCollectives)];
  link.ranks = fields.integer("ranks", {2, kDegreeRange.max});
  link.ranks_per_node = fields.integer_or("ranks_per_node", 1, {1, kDegreeRange.max});
  link.bytes = fields.number("bytes", {1, 1e15});
  link.ms = fields.number("ms", kMeasuredMsRange);
  link.sureness = read_sureness(fields);
  return link;
}

void keep_in_range(double& value, NumberRange range) {
  value = std::isnan(value) ? range.min : std::clamp(value, range.min, range.max);
}

void keep_in_range(BlockMeasurement& block) {
  keep_in_range(block.forward_ms, kMeasuredMsRange);
  for (double* ms : {&block.backward_input_ms, &block.backward_weight_ms, &block.attention_ms})
    keep_in_range(*ms, kPassMsRange);
  keep_in_range(block.sureness.spread_percent, kSpreadRange);
}

void keep_in_range(UpdateMeasurement& update) {
  keep_in_range(update.ms, kMeasuredMsRange);
  keep_in_range(update.sureness.spread_percent, kSpreadRange);
}

void keep_in_range(LinkMeasurement& link) {
  keep_in_range(link.ms, kMeasuredMsRange);
  keep_in_range(link.sureness.spread_percent, kSpreadRange);
}

}  // namespace weft
