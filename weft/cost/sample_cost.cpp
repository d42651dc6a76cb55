#include "weft/cost/sample_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "weft/base/as_double.h"
#include "weft/base/check.h"
#include "weft/meaning/block_exchanges.h"
#include "weft/meaning/macro_batch.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/name_weights.h"
#include "weft/schedule/generators.h"

namespace weft {
namespace {

/// How often each pass of a block runs for a microbatch.
struct Passes {
  double forward = 0;
  double forward_again = 0;  ///< of a block that is recomputed
  double attention = 0;      ///< again, where attention is recomputed alone
  double input = 0;
  double entry_rows = 0;  ///< of an embedding: gradients of its rows become whole
  double weight = 0;
};

double time_of(const BlockTime& time, const Passes& passes, const BackwardNeeds& backward, bool splits) {
  double input_ms = time.backward_input.total_ms(), weight_ms = time.backward_weight.total_ms();
  // What the other half of a backward would hide.
  if (splits || !backward.weights) input_ms += time.hidden_input_tp_ms;
  if (splits) weight_ms += time.hidden_weight_tp_ms;
  return passes.forward * time.forward.total_ms() + passes.attention * time.attention.total_ms() +
         passes.input * input_ms + passes.entry_rows * time.backward_input.tp_ms + passes.weight * weight_ms;
}

/// A module's blocks and how often they run, all stages together.
class ModulePasses {
 public:
  ModulePasses(const Plan& plan, const ModulePlan& module)
      : module_(module),
        spec_(*plan.model.find(module.kind)),
        trainable_(plan),
        backward_(trainable_.backward_of(module.kind)),
        kinds_(spec_.distinct_layers.size()) {
    splits_ = has_split_backward(plan, module);
    entry_ = passes_of(0, Passes{.forward = 1, .weight = 1});
    if (!module.is_encoder() && entry_placing(plan, trainable_).needs_gradient) entry_.entry_rows = 1;
    if (module.is_encoder()) {
      output_.forward = 1 + (module.recompute_from_inputs && backward_.runs() ? 1 : 0);
      output_.input = trainable_.gives_gradients(module) ? 1 : 0;
    }
    exit_ = passes_of(num_blocks(spec_) - 1,
                      Passes{.forward = 1,
                             .attention = module.exit_recompute() == BlockRecompute::kLogits ? 1.0 : 0,
                             .input = 1,
                             .weight = 1});
    if (module.is_in_pipeline()) {
      std::vector<StagePart> parts;
      list_stage_parts(plan, parts);
      for (const StagePart& part : parts) {
        if (plan.modules[static_cast<size_t>(part.module)].kind == module.kind)
          add_layers(part.first_layer, part.num_layers, part.recompute);
      }
    } else {
      int64_t first = 0;
      for (size_t rank = 0; rank < module.layers.size(); ++rank) {
        const int64_t count = module.layers[rank][0];
        add_layers(first, count, module.recompute_of(rank, 0));
        first += count;
      }
    }
  }

  /// Visits every block with its passes: visit(block, passes).
  template <typename Visit>
  void for_each(Visit visit) const {
    visit(spec_.entry, entry_, [](const ModuleCosts& costs) -> const BlockTime& { return costs.entry.time; });
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      visit(spec_.distinct_layers[kind], kinds_[kind],
            [kind](const ModuleCosts& costs) -> const BlockTime& { return costs.distinct_layers[kind].time; });
    }
    visit(spec_.exit, exit_, [](const ModuleCosts& costs) -> const BlockTime& { return costs.exit.time; });
    visit(spec_.exit, output_, [](const ModuleCosts& costs) -> const BlockTime& { return costs.output; });
  }

  double ms(const BlockTime& time, const Passes& passes) const { return time_of(time, passes, backward_, splits_); }

 private:
  /// As far as the backward has to go, with as much of the weights' gradients as is trained.
  Passes passes_of(int64_t place, Passes passes) const {
    const BackwardNeeds backward = trainable_.has_rules() ? trainable_.passes_of(spec_.kind, place) : backward_;
    if (!backward.runs()) passes.attention = passes.forward_again = 0;
    if (!backward.inputs) passes.input = 0;
    if (!backward.weights) passes.weight = 0;
    if (backward.weights && trainable_.has_own_rules()) {
      const OpShare share = share_of(module_);
      const Block& block = block_at(spec_, place);
      LocalParameters all;
      for (const Op& op : block.ops) {
        if (has_gradient(block, op)) all += local_parameters(op, share);
      }
      passes.weight *=
          as_double(trainable_.trained_parameters(spec_.kind, place, share).total()) / as_double(all.total());
    }
    passes.forward += passes.forward_again;
    if (module_.recompute_from_inputs && backward_.runs()) passes.forward += 1;
    return passes;
  }

  void add_layers(int64_t first, int64_t count, std::span<const RecomputeRun> recompute) {
    const int64_t end = first + count;
    for (const RecomputeRun& run : recompute) {
      add_layers(first, run.blocks, run.what);
      first += run.blocks;
    }
    add_layers(first, end - first, BlockRecompute::kKeep);
  }

  void add_layers(int64_t first, int64_t count, BlockRecompute what) {
    for (int64_t i = 0; i < count; ++i) {
      Passes passes{.forward = 1, .input = 1, .weight = 1};
      if (what == BlockRecompute::kFull) passes.forward_again = 1;
      if (what == BlockRecompute::kAttention) passes.attention = 1;
      passes = passes_of(first + i + 1, passes);
      Passes& all = kinds_[spec_.layers[static_cast<size_t>(first + i)]];
      all.forward += passes.forward;
      all.attention += passes.attention;
      all.input += passes.input;
      all.weight += passes.weight;
    }
  }

  const ModulePlan& module_;
  const Module& spec_;
  Trainable trainable_;
  BackwardNeeds backward_;  ///< of some block
  bool splits_ = false;
  Passes entry_, exit_, output_;
  std::vector<Passes> kinds_;
};

/// The attention of a block, with the pairs that its kernel computes: unfused, masked ones too.
std::optional<Attention> attention_of(const Block& block, AttentionKernel kernel) {
  for (const Op& op : block.ops) {
    const auto* attention = std::get_if<Attention>(&op.shape);
    if (attention == nullptr) continue;
    Attention counted = *attention;
    if (kernel == AttentionKernel::kUnfused && counted.mask != Mask::kWindowed) counted.mask = Mask::kFull;
    return counted;
  }
  return std::nullopt;
}

bool has_bound(const Attention& attention) {
  return attention.mask == Mask::kSliding || attention.mask == Mask::kWindowed;
}

bool counts_alike(const Attention& a, const Attention& b) {
  return a.mask == b.mask && (!has_bound(a) || a.window == b.window);
}

/// The usual load with a little more of sequences of one length.
struct Probe {
  double length = 0;
  double count = 0;

  Segments added_to(Segments load) const {
    load.push_back({length, count});
    return load;
  }
};

}  // namespace

double SampleCost::operator()(const Segments& segments) const {
  double ms = ms_per_token_ * num_tokens(segments);
  for (const PairTerm& term : pairs_) ms += term.ms_per_pair * num_attention_pairs(term.attention, segments);
  if (ms_per_sequence_ != 0) {
    for (const Segment& segment : segments) ms += ms_per_sequence_ * segment.count;
  }
  return std::max(0.0, ms);
}

SampleCost sample_cost(const CostModel& model, const Plan& plan, const ModulePlan& module) {
  SampleCost cost;
  Segments load = model.average().of(module.kind);
  const auto at_once = static_cast<double>(samples_at_once(plan, module));
  double squares = 0;
  for (Segment& segment : load) {
    segment.count *= at_once;
    squares += segment.count * segment.length * segment.length;
  }
  const double tokens = num_tokens(load);
  if (tokens <= 0) return cost;
  const double usual_length = squares / tokens;
  const ModulePasses passes(plan, module);
  const ModuleCosts before = model.module_costs(plan, module, load);
  ModuleCosts with_probe = before;
  passes.for_each([&](const Block& block, const Passes& own, auto of) {
    const auto attention = attention_of(block, plan.workload.attention);
    const double middle = attention && has_bound(*attention) ? static_cast<double>(attention->window) : usual_length;
    // Little enough to stay on one straight piece, long enough for the difference to be exact.
    constexpr double kShare = 1e-5;
    const Probe shorter{.length = middle / 2, .count = kShare * tokens / (middle / 2)};
    const Probe longer{.length = 4 * middle, .count = kShare * tokens / (4 * middle)};
    const double before_ms = passes.ms(of(before), own);
    const auto added_ms = [&](const Probe& probe) {
      model.price_load(plan, module, probe.added_to(load), with_probe);
      return (passes.ms(of(with_probe), own) - before_ms) / probe.count;
    };
    const double short_ms = added_ms(shorter);
    double ms_per_token = short_ms / shorter.length;
    if (attention) {
      // a · length + b · pairs(length), at two lengths; in a ring each sequence adds calls, too, seen at a third.
      double long_ms = added_ms(longer), first_ms = short_ms;
      double short_length = shorter.length, long_length = longer.length;
      double short_pairs = num_attention_pairs(*attention, {{short_length, 1}});
      double long_pairs = num_attention_pairs(*attention, {{long_length, 1}});
      const Probe third{.length = middle, .count = kShare * tokens / middle};
      const double third_pairs = num_attention_pairs(*attention, {{middle, 1}});
      const bool is_ring = module.cp > module.cp_ulysses;
      const double third_ms = is_ring ? added_ms(third) : 0;
      if (is_ring) {
        first_ms -= third_ms;
        long_ms -= third_ms;
        short_length -= middle;
        long_length -= middle;
        short_pairs -= third_pairs;
        long_pairs -= third_pairs;
      }
      const double determinant = short_pairs * long_length - long_pairs * short_length;
      WEFT_CHECK(determinant != 0, "pairs grow like tokens from {} to {}", shorter.length, longer.length);
      const double ms_per_pair = (first_ms * long_length - long_ms * short_length) / determinant;
      ms_per_token = (first_ms - ms_per_pair * short_pairs) / short_length;
      if (is_ring) cost.ms_per_sequence_ += third_ms - ms_per_pair * third_pairs - ms_per_token * middle;
      auto term = std::find_if(cost.pairs_.begin(), cost.pairs_.end(),
                               [&](const auto& t) { return counts_alike(t.attention, *attention); });
      if (term == cost.pairs_.end()) term = cost.pairs_.insert(term, {.attention = *attention});
      term->ms_per_pair += ms_per_pair;
    }
    cost.ms_per_token_ += ms_per_token;
    cost.fixed_ms_ += before_ms;
  });
  cost.fixed_ms_ -= cost(load);
  return cost;
}

PlanSampleCosts::PlanSampleCosts(const CostModel& model, const Plan& plan) {
  for (const ModulePlan& module : plan.modules)
    (module.is_in_pipeline() ? in_pipeline_ : beside_).emplace(module.kind, sample_cost(model, plan, module));
}

double PlanSampleCosts::llm_ms(const SampleLoad& sample) const {
  double ms = 0;
  for (const auto& [kind, cost] : in_pipeline_) ms += cost(sample.of(kind));
  return ms;
}

double PlanSampleCosts::encoder_ms(ModuleKind kind, const SampleLoad& sample) const {
  return beside_.at(kind)(sample.of(kind));
}

}  // namespace weft
