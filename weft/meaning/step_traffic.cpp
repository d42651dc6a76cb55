#include "weft/meaning/step_traffic.h"

#include <algorithm>
#include <numeric>

#include "weft/base/check.h"
#include "weft/meaning/block_traffic.h"
#include "weft/meaning/bridge_traffic.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/routers.h"
#include "weft/meaning/stage_flow.h"
#include "weft/meaning/state_traffic.h"
#include "weft/meaning/trainable.h"
#include "weft/spec/weight_names.h"

namespace weft {
namespace {

constexpr int64_t kNumberBytes = 8;  // of counts and of sums in double precision

/// Experts of a layer; 0 where it is dense.
int64_t experts_of(const Block& layer) {
  for (const Op& op : layer.ops) {
    if (is_router(op)) return std::get<Matmul>(op.shape).out;
  }
  return 0;
}

const Block& layer_of(const Module& module, int64_t layer) {
  return module.layer_kinds[module.layers[static_cast<size_t>(layer)]];
}

/// What the layers of a part recompute, by layer.
std::vector<BlockRecompute> recomputes_of(const StagePart& part) {
  std::vector<BlockRecompute> recomputes;
  for (const RecomputeRun& run : part.recompute)
    recomputes.insert(recomputes.end(), static_cast<size_t>(run.blocks), run.what);
  recomputes.resize(static_cast<size_t>(part.num_layers), BlockRecompute::kKeep);
  return recomputes;
}

/// Rows of a module on a rank, and whom they attend to.
struct ModuleRows {
  int64_t inside = 0;
  int64_t outside = 0;
  RowDeal deal;
  PackedSegments segments;
  PackedSegments windows;
};

ModuleRows rows_of(const EncoderLoad& load, EncoderShare share) {
  return {.inside = share.inside,
          .outside = share.outside,
          .deal = std::move(share.deal),
          .segments = PackedSegments(load.segments),
          .windows = PackedSegments(load.windows)};
}

/// How often rows go to experts and come back in a microbatch, and their gradients.
struct ExpertPasses {
  int64_t forwards = 0;
  int64_t backwards_there = 0;  ///< through the way to experts
  int64_t backwards_back = 0;   ///< through the way back from them

  bool operator==(const ExpertPasses&) const = default;
};

class StepWriter {
 public:
  StepWriter(const Plan& plan, const StepLoad& load, int64_t rank)
      : plan_(plan),
        load_(load),
        rank_(rank),
        bytes_(static_cast<int64_t>(num_bytes(plan.precision.compute))),
        trainable_(plan) {}

  std::vector<GroupTraffic> write() {
    for (size_t module = 0; module < plan_.modules.size(); ++module) {
      if (plan_.modules[module].is_encoder() && plan_.modules[module].is_in_pipeline()) continue;
      const bool is_encoder = plan_.modules[module].is_encoder();
      if (const std::optional<ModulePlace> place = place_on(plan_, module, rank_)) {
        if (is_encoder) {
          add_encoder(module, *place);
        } else {
          add_llm(module, *place);
        }
      }
      if (is_encoder) add_bridge_traffic(plan_, load_, module, rank_, writer_);
    }
    add_sums();
    return traffic_since({}, writer_.list());
  }

 private:
  /// A part of a stage. `runs` is how often its forward runs by itself; `first_backward` the place of the first block
  /// of the module that gradients come to.
  void add_layers(const ModulePlace& place, const StagePart& part, const ModuleRows& rows, int64_t runs,
                  int64_t first_backward) {
    BlockTraffic traffic(place, bytes_, writer_);
    const std::vector<BlockRecompute> recomputes = recomputes_of(part);
    for (int64_t i = 0; i < part.num_layers; ++i) {
      const Block& block = layer_of(*place.spec, part.first_layer + i);
      const int64_t backwards = first_backward <= part.first_layer + i + 1 ? 1 : 0;
      const bool is_recomputed = recomputes[static_cast<size_t>(i)] == BlockRecompute::kFull;
      const bool has_attention_again = recomputes[static_cast<size_t>(i)] == BlockRecompute::kAttention;
      const BlockPasses passes{.forwards = runs + (is_recomputed ? backwards : 0), .backwards = backwards};
      const auto gradients = trainable_.gradients_of(place.plan->kind, part.first_layer + i + 1,
                                                     first_backward < part.first_layer + i + 1);
      traffic.changes(block, rows.inside, rows.outside, passes.forwards, gradients);
      for (size_t op = 0; op < block.ops.size(); ++op) {
        const auto* attention = std::get_if<Attention>(&block.ops[op].shape);
        if (attention == nullptr) continue;
        const bool has_windows = attention->mask == Mask::kWindowed && rows.windows.num_rows() > 0;
        const int64_t comes_back = gradients[op].of_output ? 1 : 0;
        traffic.attention(*attention, has_windows ? rows.windows : rows.segments, rows.deal,
                          {.forwards = passes.forwards, .backwards = comes_back}, has_attention_again ? comes_back : 0);
      }
      add_experts(place, part.first_layer + i, block, passes.forwards, gradients);
    }
  }

  static BlockPasses exit_passes(const ModulePlace& place, int64_t runs, int64_t first_backward) {
    return {.forwards = runs, .backwards = first_backward < num_blocks(*place.spec) ? 1 : 0};
  }

  void add_exit(const ModulePlace& place, const ModuleRows& rows, int64_t runs, int64_t first_backward) {
    const int64_t exit = num_blocks(*place.spec) - 1;
    BlockTraffic(place, bytes_, writer_)
        .changes(place.spec->exit, rows.inside, rows.outside, runs,
                 trainable_.gradients_of(place.plan->kind, exit, first_backward < exit));
  }

  /// What a router and its experts' ranks tell each other. Rows are those of the whole step, counted once it is over.
  void add_experts(const ModulePlace& place, int64_t layer, const Block& block, int64_t forwards,
                   const std::vector<OpGradients>& gradients) {
    const int64_t experts = experts_of(block);
    if (experts == 0) return;
    if (load_.balances_experts) writer_.all_reduce(place.balance, experts + 1, kNumberBytes, forwards);
    ExpertPasses passes{.forwards = forwards};
    for (size_t op = 0; op < block.ops.size(); ++op) {
      const auto* matmul = std::get_if<Matmul>(&block.ops[op].shape);
      if (is_router(block.ops[op])) passes.backwards_there = gradients[op].of_input ? 1 : 0;
      if (matmul != nullptr && matmul->copies > 1) passes.backwards_back = gradients.at(op + 1).of_input ? 1 : 0;
    }
    expert_passes_[layer].push_back(passes);
  }

  void add_expert_rows(const ModulePlace& place) {
    if (place.plan->ep == 1) return;
    const RankGroup& group = place.experts;
    const int64_t first_place = place.routed.rank - group.rank;
    for (const auto& [layer, runs] : expert_passes_) {
      int64_t router = 0;
      for (int64_t before = 0; before < layer; ++before)
        router += experts_of(layer_of(*place.spec, before)) > 0 ? 1 : 0;
      const auto& chosen = load_.expert_rows[static_cast<size_t>(router)];
      const int64_t experts = experts_of(layer_of(*place.spec, layer)), here = experts / group.size();
      const auto rows_for = [&](int64_t from, int64_t to) {
        const auto first = chosen[static_cast<size_t>(first_place + from)].begin() + to * here;
        return std::accumulate(first, first + here, int64_t{0});
      };
      Traffic rows;
      for (int64_t other = 0; other < group.size(); ++other) {
        if (other == group.rank) continue;
        rows += {.sent = rows_for(group.rank, other), .received = rows_for(other, group.rank)};
      }
      const ExpertPasses& each = runs.front();
      for (const ExpertPasses& passes : runs)
        WEFT_CHECK(passes == each,
                   "microbatches whose gradients stop at layer {}, and others: experts' rows are known of all together",
                   layer);
      const auto num_runs = static_cast<int64_t>(runs.size());
      writer_.add(group, OperationKind::kAllToAll, {experts - here, experts - here}, kNumberBytes,
                  num_runs * each.forwards);
      // There, and back from the experts; gradients the other way.
      const Traffic moved = rows.in_bytes(place.spec->width);
      const Traffic returned{.sent = moved.received, .received = moved.sent};
      const auto add = [&](const Traffic& way, int64_t backwards) {
        Traffic all = way.in_bytes(each.forwards);
        all += Traffic{.sent = way.received, .received = way.sent}.in_bytes(backwards);
        writer_.add_calls(group, OperationKind::kAllToAll, all.in_bytes(bytes_),
                          num_runs * (each.forwards + backwards));
      };
      add(moved, each.backwards_there);
      add(returned, each.backwards_back);
    }
  }

  /// One of the tensors that a microbatch carries over a border, on all tensor-parallel ranks together.
  struct FlowRows {
    const ModulePlace& place;
    int64_t rows = 0;
    int64_t width = 0;
  };
  /// Tensors of a pipeline's microbatch over the borders of one stage. Each rank sends its part of them, and rows that
  /// ranks need whole are joined where they arrive.
  void add_flow(const ModulePlace& place, const std::vector<FlowModule>& modules, int32_t stage, int32_t last,
                const std::function<bool(int32_t)>& crosses, const std::function<bool(size_t)>& has_data,
                const std::function<FlowRows(const FlowPart&)>& rows_of_part, bool has_backward) {
    const auto add = [&](int32_t after, bool sends) {
      if (after < 0 || after >= last || !crosses(after)) return;
      for (const FlowPart& part : flow_after(modules, after, has_data)) {
        const FlowRows flow = rows_of_part(part);
        const RankGroup& tensor = flow.place.tensor;
        const int64_t elements = rows_sent(flow.rows, tensor.size(), tensor.rank).size() * flow.width;
        const bool comes_back = has_backward && part.needs_gradient;
        const bool arrives = !sends || comes_back;
        BlockTraffic(flow.place, bytes_, writer_)
            .change(RowChange::kJoin, flow.rows, flow.width, {.forwards = arrives ? 1 : 0});
        if (sends) {
          writer_.send(place.pipeline, elements, bytes_);
          if (comes_back) writer_.receive(place.pipeline, elements, bytes_);
        } else {
          writer_.receive(place.pipeline, elements, bytes_);
          if (comes_back) writer_.send(place.pipeline, elements, bytes_);
        }
      }
    };
    add(stage - 1, /*sends=*/false);
    add(stage, /*sends=*/true);
  }

  void add_encoder(size_t module, const ModulePlace& place) {
    const ModulePlan& plan = plan_.modules[module];
    const bool has_gradient = trainable_.trains(plan.kind);
    const int64_t first_backward = trainable_.first_trained(plan.kind);
    const int64_t runs = has_gradient && plan.recompute_from_inputs ? 2 : 1;
    const auto& macro_batches = load_.beside.at(plan.kind).macro_batches[static_cast<size_t>(place.groups.place.dp)];
    const std::vector<FlowModule> flow = flow_modules(plan_, module);
    const auto last = static_cast<int32_t>(plan.pp) - 1;
    for (const StageContent& stage : stages_of(plan_, module, place.groups)) {
      for (const std::optional<EncoderLoad>& load : macro_batches) {
        if (!load) continue;
        const ModuleRows rows = rows_of(*load, share_encoder(plan_, plan.kind, *load, plan.cp, place.context.rank));
        for (const StagePart& part : stage.parts()) {
          add_layers(place, part, rows, runs, first_backward);
          if (!part.has_exit) continue;
          const BlockPasses passes = exit_passes(place, runs, first_backward);
          add_exit(place, rows, runs, first_backward);
          if (place.divides_rows())
            BlockTraffic(place, bytes_, writer_)
                .change(RowChange::kGather, rows.outside, place.spec->output_width, passes);
        }
        add_flow(
            place, flow, stage.stage(), last, [](int32_t) { return true; },
            [&](size_t index) { return index == module; },
            [&](const FlowPart&) { return FlowRows{.place = place, .rows = rows.inside, .width = place.spec->width}; },
            has_gradient);
      }
      const auto num_macro = std::ssize(macro_batches);
      add_states(stage, place, {.forwards = num_macro * runs, .backwards = has_gradient ? num_macro : 0});
    }
  }

  /// A microbatch as the llm's pipeline has it on this rank.
  struct Microbatch {
    const MicrobatchLoad* load = nullptr;
    TextShare text;
    ModuleRows text_rows;
    std::map<ModuleKind, EncoderShare> shares;
    std::map<ModuleKind, ModuleRows> media;  ///< of inline encoders with data

    bool has_data(const ModulePlan& module) const {
      if (!module.is_encoder()) return true;
      if (module.is_in_pipeline()) return media.contains(module.kind);
      const auto places = load->places.find(module.kind);
      return places != load->places.end() && !places->second.empty();
    }
  };

  Microbatch microbatch_of(const MicrobatchLoad& load, const ModulePlace& llm) const {
    const int64_t cp = llm.plan->cp, rank = llm.context.rank;
    Microbatch microbatch;
    microbatch.load = &load;
    microbatch.text = share_text(load, cp, rank);
    microbatch.text_rows = {.inside = microbatch.text.tokens,
                            .outside = microbatch.text.tokens,
                            .deal = microbatch.text.deal,
                            .segments = PackedSegments(load.samples),
                            .windows = {}};
    for (const auto& [kind, media] : load.media) {
      microbatch.shares[kind] = share_encoder(plan_, kind, media, cp, rank);
      microbatch.media[kind] = rows_of(media, microbatch.shares[kind]);
    }
    return microbatch;
  }

  /// The embedding, among whose rows those of encoders are placed.
  void add_text_entry(const ModulePlace& llm, const std::map<ModuleKind, ModulePlace>& inline_places,
                      const Microbatch& microbatch) {
    // Rows that come divided, from beside the pipeline, are placed when the others have been divided.
    bool has_whole_media = false, needs_gradient = trainable_.trains_table();
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_encoder() || !microbatch.has_data(module)) continue;
      const bool is_whole = module.is_in_pipeline() || !llm.divides_rows();
      has_whole_media |= is_whole;
      needs_gradient |= is_whole && trainable_.trains(module.kind);
      if (!module.is_in_pipeline()) continue;
      const ModulePlace& place = inline_places.at(module.kind);
      BlockTraffic media(place, bytes_, writer_);
      const BlockPasses passes{.forwards = 1, .backwards = trainable_.trains(module.kind) ? 1 : 0};
      const EncoderShare& share = microbatch.shares.at(module.kind);
      if (place.divides_rows()) media.change(RowChange::kGather, share.outside, place.spec->output_width, passes);
      const auto needed = microbatch.text.needed.find(module.kind);
      media.exchange_media(share.made,
                           needed != microbatch.text.needed.end() ? needed->second : RowLists(share.made.size()),
                           place.spec->output_width, passes);
    }
    BlockTraffic text(llm, bytes_, writer_);
    const BlockPasses of_table{.forwards = 1, .backwards = trainable_.trains_table() ? 1 : 0};
    const int64_t tokens = microbatch.text.tokens, width = llm.spec->width;
    if (!has_whole_media) return text.change(RowChange::kLeave, tokens, width, of_table);
    text.change(RowChange::kSum, tokens, width, of_table);
    text.change(RowChange::kDivide, tokens, width, {.forwards = 1, .backwards = needs_gradient ? 1 : 0});
  }

  void add_llm(size_t index, const ModulePlace& llm) {
    std::map<ModuleKind, ModulePlace> places;
    for (const size_t module : modules_of_pipeline(plan_, index))
      places[plan_.modules[module].kind] = place_on(plan_, module, rank_).value();
    const std::vector<FlowModule> flow = flow_modules(plan_, index);
    const int32_t last = num_stages(plan_) - 1;
    const auto& loads = load_.llm[static_cast<size_t>(llm.groups.place.dp)];
    const auto num_microbatches = std::ssize(loads);
    std::vector<Microbatch> microbatches;
    for (const MicrobatchLoad& load : loads) microbatches.push_back(microbatch_of(load, llm));
    for (const StageContent& stage : stages_of(plan_, index, llm.groups)) {
      for (const Microbatch& microbatch : microbatches) {
        add_stage(stage, places, microbatch);
        add_flow(
            llm, flow, stage.stage(), last,
            [&](int32_t after) { return place_of_stage(plan_, after).rank != place_of_stage(plan_, after + 1).rank; },
            [&](size_t module) { return microbatch.has_data(plan_.modules[module]); },
            [&](const FlowPart& part) {
              const ModulePlace& place = places.at(plan_.modules[part.module].kind);
              const ModuleRows& rows = plan_.modules[part.module].is_encoder() ? microbatch.media.at(place.plan->kind)
                                                                               : microbatch.text_rows;
              return FlowRows{.place = place,
                              .rows = part.is_output ? rows.outside : rows.inside,
                              .width = part.is_output ? place.spec->output_width : place.spec->width};
            },
            /*has_backward=*/true);
      }
      add_states(stage, llm, {.forwards = num_microbatches, .backwards = num_microbatches});
    }
    add_expert_rows(llm);
  }

  void add_stage(const StageContent& stage, const std::map<ModuleKind, ModulePlace>& places,
                 const Microbatch& microbatch) {
    for (const StagePart& part : stage.parts()) {
      const ModulePlan& module = plan_.modules[static_cast<size_t>(part.module)];
      if (!microbatch.has_data(module)) continue;
      const ModulePlace& place = places.at(module.kind);
      int64_t first_backward = trainable_.first_trained(module.kind);
      if (!module.is_encoder()) {
        for (const ModulePlan& other : plan_.modules) {
          if (other.is_encoder() && trainable_.trains(other.kind) && microbatch.has_data(other)) first_backward = 0;
        }
      }
      const ModuleRows& rows = module.is_encoder() ? microbatch.media.at(module.kind) : microbatch.text_rows;
      if (part.has_entry && !module.is_encoder()) add_text_entry(place, places, microbatch);
      add_layers(place, part, rows, 1, first_backward);
      if (!part.has_exit) continue;
      const BlockPasses passes = exit_passes(place, 1, first_backward);
      add_exit(place, rows, 1, first_backward);
      const bool is_double = plan_.precision.compute == Precision::kFp64;
      if (!module.is_encoder())
        BlockTraffic(place, bytes_, writer_).vocabulary_loss(microbatch.text.targets, is_double ? 8 : 4, passes);
    }
  }

  void add_states(const StageContent& stage, const ModulePlace& place, const StagePasses& passes) {
    const ModulePlan& module = *place.plan;
    const StageBuckets shared = stage.buckets(module, false);
    add_bucket_traffic(stage, shared, place.data, plan_.precision, passes, writer_);
    if (module.ep > 1)
      add_bucket_traffic(stage, stage.buckets(module, true), place.same_experts, plan_.precision, passes, writer_);
    add_copy_traffic(stage, shared, place.tensor, place.same_keys, plan_.precision, passes, writer_);
    add_table_traffic(shared, place.tied_ends, plan_.precision, writer_);
  }

  /// What all ranks know after a step: the gradient's norm, the loss, and how loaded experts were.
  void add_sums() {
    std::vector<int64_t> ranks(static_cast<size_t>(plan_.world_size));
    std::iota(ranks.begin(), ranks.end(), int64_t{0});
    const RankGroup world = named_group(group_names::kWorld, std::move(ranks), rank_);
    const Routers routers = routers_of(plan_);
    writer_.all_reduce(world, 1, kNumberBytes, routers.count() > 0 ? 3 : 2);
    if (routers.count() > 0) writer_.all_reduce(world, routers.count() * routers.num_experts + 1, kNumberBytes);
  }

  const Plan& plan_;
  const StepLoad& load_;
  int64_t rank_;
  int64_t bytes_;
  Trainable trainable_;
  TrafficWriter writer_;
  std::map<int64_t, std::vector<ExpertPasses>> expert_passes_;  ///< by layer of the llm, of every microbatch
};

}  // namespace

std::vector<GroupTraffic> step_traffic(const Plan& plan, const StepLoad& load, int64_t rank) {
  return StepWriter(plan, load, rank).write();
}

}  // namespace weft
