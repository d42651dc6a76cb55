#include "weft/cost/block_memory.h"

#include <algorithm>

#include "weft/base/as_double.h"
#include "weft/base/loss_rows.h"
#include "weft/cost/local_shape.h"
#include "weft/cost/program_memory.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

struct OpMemory {
  double saved = 0;
  double statistics = 0;
  double scores = 0;           ///< what unfused attention keeps of its scores
  double weight_input = 0;     ///< of `saved`, what a weight gradient reads
  double output_gradient = 0;  ///< what a deferred weight gradient reads besides
  double moved = 0;            ///< inputs and outputs while the operator runs
  double some_logits = 0;      ///< of the rows that have theirs at a time
};

class OpMeter {
 public:
  OpMeter(const Op& op, const BlockSetting& setting, const Segments& segments, double tokens)
      : op_(op),
        setting_(setting),
        segments_(segments),
        rows_(op.rows.value() * tokens / as_double(setting.cp)),
        bytes_(num_bytes(setting.precision)) {}

  OpMemory measure() const {
    OpMemory memory;
    const double sp = has_whole_rows(op_, setting_) ? 1 : as_double(setting_.row_share());
    const Saved& kept = op_.saved;
    const double divided = as_double(kept.divided) * unevenness();
    memory.saved = rows_ * bytes_ * (as_double(kept.whole) / sp + divided);
    memory.statistics =
        rows_ * kFp32Bytes * (as_double(kept.whole_fp32) / sp + as_double(kept.divided_fp32) * unevenness());
    std::visit([&](const auto& shape) { add(shape, memory); }, op_.shape);
    memory.saved += memory.statistics + memory.scores;
    return memory;
  }

 private:
  /// What the busiest rank has of features that tensor parallelism divides: 1/tp, or more where heads do not divide.
  double unevenness() const {
    const auto* a = std::get_if<Attention>(&op_.shape);
    if (a == nullptr) return 1 / as_double(setting_.tp);
    const LocalHeads heads = local_heads(*a, setting_.share());
    const int64_t keys =
        std::max(heads.keys, heads_after_ulysses(*a, setting_.share(), setting_.cp_ulysses).keys * setting_.cp_ulysses);
    return as_double(heads.queries + keys) / as_double(a->heads + a->kv_heads);
  }

  void add(const Matmul& m, OpMemory& memory) const {
    const LocalMatmul local = local_matmul(m, op_.split(), setting_.share());
    const double rows = rows_ / as_double(row_share(op_, setting_));
    memory.weight_input = memory.saved;
    memory.output_gradient = rows * as_double(local.out) * bytes_;
    // Inputs of a column split are gathered whole while it runs.
    memory.moved = rows * as_double(local.in + local.out) * bytes_;
  }
  void add(const Attention& a, OpMemory& memory) const {
    const double heads = as_double(local_heads(a, setting_.share()).queries);
    memory.moved = rows_ * 4 * heads * as_double(a.head_dim) * bytes_;
    memory.weight_input = rows_ * heads * as_double(a.head_dim) * bytes_;  // the projection's, kept here
    const bool is_fused = setting_.attention == AttentionKernel::kFused;
    if (is_fused && a.dropout == 0) return;
    Attention all = a;
    if (all.mask != Mask::kWindowed) all.mask = Mask::kFull;
    const double scores = num_attention_pairs(all, segments_) / as_double(setting_.cp) * heads;
    if (is_fused) {
      // With dropout attention is put together of products. Nothing of its scores is kept; going back there are what
      // was drawn, the weights, those that are left, their gradients and the scores'.
      memory.moved += scores * (4 * std::max(bytes_, kFp32Bytes) + bytes_) / 2;
      return;
    }
    // Softmax's output and, with dropout, its mask and its output.
    memory.scores = scores * (bytes_ + (a.dropout > 0 ? kMaskBytes + bytes_ : 0));
    memory.statistics = 0;  // log-sums are the fused kernel's
    memory.moved += 2 * scores * bytes_;
  }
  void add(const Norm& n, OpMemory& memory) const {
    memory.moved = rows_ / as_double(row_share(op_, setting_)) * 2 * as_double(n.width * n.groups) /
                   as_double(feature_share(op_, setting_)) * bytes_;
  }
  void add(const Pointwise& p, OpMemory& memory) const {
    const double rows = rows_ / as_double(row_share(op_, setting_)) / as_double(feature_share(op_, setting_));
    // Masks of dropout are drawn again here. Other systems, whose attention may be unfused, keep them.
    if (setting_.attention == AttentionKernel::kUnfused) memory.saved += rows * as_double(p.dropped) * kMaskBytes;
    memory.moved = rows * as_double(p.elements_in + p.elements_out) * bytes_;
  }
  void add(const Lookup& l, OpMemory& memory) const { memory.moved = rows_ * as_double(l.width) * bytes_; }
  void add(const CrossEntropy& c, OpMemory& memory) const {
    // Logits become their gradient in place; of the rows that are looked at together they and their exponentials are
    // there in fp32: the workspace is twice this.
    const double classes = as_double(c.classes) / as_double(feature_share(op_, setting_));
    const auto together = as_double(rows_of_loss(static_cast<int64_t>(classes), /*is_cpu=*/false));
    memory.moved = std::min(rows_, together) * classes * kFp32Bytes;
    const auto at_a_time = as_double(rows_of_logits(static_cast<int64_t>(classes), /*is_cpu=*/false));
    memory.some_logits = std::min(rows_, at_a_time) * classes * bytes_;
  }

  const Op& op_;
  const BlockSetting& setting_;
  const Segments& segments_;
  double rows_;
  double bytes_;
};

}  // namespace

BlockMemory memory_of(const Module& module, const Block& block, const BlockSetting& setting, const Segments& segments) {
  BlockMemory total;
  const double tokens = num_tokens(segments);
  if (tokens <= 0) return total;
  if (block.program) total = program_memory(block, setting, segments);
  if (num_in_program(block) == block.ops.size()) return total;
  double most_moved = 0, recomputed = 0, weight_inputs = 0, output_gradients = 0;
  for (size_t i = num_in_program(block); i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    const OpMemory memory = OpMeter(op, setting, segments, tokens).measure();
    total.saved += memory.saved;
    total.statistics += memory.statistics;
    recomputed += memory.scores;
    if (std::holds_alternative<Attention>(op.shape)) recomputed += memory.statistics;
    if (std::holds_alternative<CrossEntropy>(op.shape)) recomputed += memory.saved - memory.statistics;
    total.some_logits += memory.some_logits;
    weight_inputs += memory.weight_input;
    output_gradients += memory.output_gradient;
    // What a loss is made of is counted with what it keeps.
    const bool is_kept = i + 1 < block.ops.size() && std::holds_alternative<CrossEntropy>(block.ops[i + 1].shape);
    most_moved = std::max(most_moved, memory.moved - (is_kept ? memory.output_gradient : 0));
  }
  total.saved_selective = total.saved - recomputed;
  total.saved_full =
      std::min(total.saved, tokens / static_cast<double>(setting.cp) / static_cast<double>(setting.row_share()) *
                                static_cast<double>(module.width) * num_bytes(setting.precision));
  total.deferred += weight_inputs + output_gradients;
  // Going back, gradients stand beside the values they belong to.
  total.workspace = std::max(total.workspace, 2 * most_moved);
  return total;
}

LocalParameters local_parameters(const Block& block, const BlockSetting& setting) {
  LocalParameters total;
  for (const Op& op : block.ops) total += local_parameters(op, setting.share());
  return total;
}

}  // namespace weft
