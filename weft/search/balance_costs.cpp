#include "weft/search/balance_costs.h"

#include <set>

#include <fmt/format.h>

#include "weft/base/fields.h"
#include "weft/base/file_kind.h"
#include "weft/base/text.h"

namespace weft {
namespace {

constexpr NumberRange kTimeRange{0, 1e9};
constexpr NumberRange kMemoryRange{0, 1e9};
constexpr IntegerRange kPpRange{1, kMostBalancedBlocks};
constexpr IntegerRange kVppRange{1, 64};
constexpr IntegerRange kMicrobatchRange{1, 1 << 16};
/// Cells of (stage, microbatch) beyond which one simulation takes seconds.
constexpr int64_t kMostCells = 4'000'000;

/// The backward in whichever form was given: whole, or as the gradients of input and weights.
void read_backward(Fields& fields, bool is_split, bool is_required, WorkTimes& times) {
  const bool has_whole = fields.has("backward_ms");
  const bool has_parts = fields.has("backward_input_ms") || fields.has("backward_weight_ms");
  if (has_whole && has_parts) {
    fields.complain("backward_ms", "is given together with backward_input_ms or backward_weight_ms",
                    "Give the whole backward or its two parts.");
  }
  if (has_whole && is_split) {
    fields.complain("backward_ms", "is given, but the schedule splits the backward",
                    "Give backward_input_ms and backward_weight_ms instead.");
  }
  const double whole = fields.number_or("backward_ms", 0, kTimeRange);
  if (is_required && !has_whole && !has_parts && !is_split)
    fields.complain("backward_ms", "is missing", "Add it, or backward_input_ms and backward_weight_ms.");
  for (const auto* part : {"backward_input_ms", "backward_weight_ms"}) {
    if (is_required && !has_whole && (has_parts || is_split) && !fields.has(part))
      fields.complain(part, "is missing", "Add it.");
  }
  const double input = fields.number_or("backward_input_ms", 0, kTimeRange);
  const double weight = fields.number_or("backward_weight_ms", 0, kTimeRange);
  times.backward_input_ms = is_split ? input : whole + input + weight;
  times.backward_weight_ms = is_split ? weight : 0;
}

BlockKind read_kind(Fields& fields, bool is_split) {
  BlockKind kind;
  kind.name = fields.name("name");
  kind.count = static_cast<int32_t>(fields.integer("count", {1, kMostBalancedBlocks}));
  kind.times.forward_ms = fields.number("forward_ms", kTimeRange);
  read_backward(fields, is_split, true, kind.times);
  kind.activation_gib = fields.number_or("activation_gib", 0, kMemoryRange);
  kind.recompute_saves_gib = fields.number_or("recompute_saves_gib", 0, kMemoryRange);
  kind.static_gib = fields.number_or("static_gib", 0, kMemoryRange);
  if (kind.recompute_saves_gib > kind.activation_gib) {
    fields.complain("recompute_saves_gib",
                    fmt::format("is {}, but activation_gib is {}: a block cannot save more than it holds",
                                kind.recompute_saves_gib, kind.activation_gib),
                    "Lower it, or raise activation_gib.");
  }
  fields.reject_unknown();
  return kind;
}

StageExtra read_extra(Fields& fields, std::string_view key, bool is_split) {
  StageExtra extra;
  if (fields.raw(key) == nullptr) return extra;
  Fields object = fields.object(key);
  extra.times.forward_ms = object.number_or("forward_ms", 0, kTimeRange);
  read_backward(object, is_split, false, extra.times);
  extra.static_gib = object.number_or("static_gib", 0, kMemoryRange);
  object.reject_unknown();
  return extra;
}

std::vector<BlockKind> read_chain(Fields& fields, bool is_split) {
  std::vector<BlockKind> chain;
  std::set<std::string> names;
  int64_t num_blocks = 0;
  for (Fields& object : fields.objects("chain")) {
    chain.push_back(read_kind(object, is_split));
    if (!names.insert(chain.back().name).second) {
      object.complain("name", fmt::format("{} is there twice", in_quotes(chain.back().name)),
                      "Give each kind of block a name of its own.");
    }
    num_blocks += chain.back().count;
  }
  if (chain.empty()) fields.complain("chain", "has no blocks, at least one kind is needed", "Add one.");
  if (num_blocks > kMostBalancedBlocks) {
    fields.complain("chain", fmt::format("has {} blocks, at most {} are allowed", num_blocks, kMostBalancedBlocks),
                    "Take several layers as one block.");
  }
  return chain;
}

/// What the schedule itself asks of its shape, with the field that is wrong.
void check_shape(Fields& fields, const BalanceCosts& costs) {
  const int64_t stages = costs.shape.pp * costs.shape.vpp;
  if (stages * costs.shape.microbatches > kMostCells) {
    fields.complain("microbatches",
                    fmt::format("{} x pp {} x vpp {} gives more than {} pairs of stage and microbatch",
                                costs.shape.microbatches, costs.shape.pp, costs.shape.vpp, with_commas(kMostCells)),
                    "Lower one of them.");
    return;
  }
  // One microbatch is enough for the schedule to judge pp and vpp.
  const Result<Schedule> judged =
      generate_schedule(costs.schedule, {.pp = costs.shape.pp, .vpp = costs.shape.vpp, .microbatches = 1});
  if (!judged) fields.complain(judged.error().source, judged.error().problem, judged.error().advice);
  if (stages > costs.num_blocks()) {
    fields.complain(
        "pp",
        fmt::format("is {}{}, but the chain has {} blocks and every stage needs one", costs.shape.pp,
                    costs.shape.vpp > 1 ? fmt::format(" with vpp {}", costs.shape.vpp) : "", costs.num_blocks()),
        costs.shape.vpp > 1 ? "Lower pp or vpp." : "Lower it.");
  }
}

}  // namespace

int32_t BalanceCosts::num_blocks() const {
  int32_t blocks = 0;
  for (const BlockKind& kind : chain) blocks += kind.count;
  return blocks;
}

Result<BalanceCosts> read_balance_costs(const Document& document) {
  if (auto error = find_wrong_kind(document, FileKind::kBalanceCosts)) return *std::move(error);
  Findings findings(document.source);
  Fields fields(document, findings);
  BalanceCosts costs;
  costs.schedule = static_cast<ScheduleName>(fields.choice("schedule", schedule_names()));
  const bool is_split = kind_of(costs.schedule).splits_backward;
  costs.shape.pp = fields.integer("pp", kPpRange);
  costs.shape.vpp = fields.integer_or("vpp", usual_chunks(costs.schedule), kVppRange);
  costs.shape.microbatches = fields.integer("microbatches", kMicrobatchRange);
  costs.p2p_ms = fields.number_or("p2p_ms", 0, kTimeRange);
  costs.memory_gib = fields.number_or("memory_gib", costs.memory_gib, kMemoryRange);
  costs.chain = read_chain(fields, is_split);
  costs.first_stage = read_extra(fields, "first_stage", is_split);
  costs.last_stage = read_extra(fields, "last_stage", is_split);
  fields.reject_unknown();
  if (!findings.first()) check_shape(fields, costs);
  if (findings.first()) return *findings.first();
  return costs;
}

}  // namespace weft
