#include "weft/simulate/stage_walk.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/tied_table.h"

namespace weft {
namespace {

/// The stage's blocks in the order of a forward.
std::vector<WalkedBlock> blocks_of(const Plan& plan, int32_t stage, const std::vector<StagePart>& parts) {
  std::vector<WalkedBlock> blocks;
  for (const StagePart& part : parts) {
    if (part.stage != stage) continue;
    const ModulePlan& module = plan.modules[static_cast<size_t>(part.module)];
    bool has_backward = !plan.workload.is_frozen(module.kind);
    if (!module.is_encoder()) {
      for (const ModulePlan& other : plan.modules) has_backward |= !plan.workload.is_frozen(other.kind);
    }
    const size_t first = blocks.size();
    const int64_t count = part.num_layers + (part.has_entry ? 1 : 0) + (part.has_exit ? 1 : 0);
    blocks.resize(first + static_cast<size_t>(count), {.has_backward = has_backward, .borrowed = {}});
    const bool is_tied = !module.is_encoder() && plan.model.has_tied_embeddings;
    if (is_tied && part.has_entry && part.has_exit) blocks.back().borrowed = first;
  }
  return blocks;
}

}  // namespace

StageWalk::StageWalk(const Plan& plan, size_t module, int32_t stage, int64_t rank, std::vector<StagePart> parts,
                     const StageBuckets& buckets, ByteCount& count)
    : plan_(plan),
      module_(module),
      stage_(stage),
      is_last_(stage == parts.back().stage),
      all_parts_(std::move(parts)),
      count_(count),
      weights_(plan, buckets, blocks_of(plan, stage, all_parts_), count) {
  for (const ModulePlan& each : plan.modules) places_.push_back(find_place(each, rank));
  size_t next = 0;
  for (const StagePart& part : all_parts_) {
    if (part.stage != stage) continue;
    Part& own = parts_.emplace_back();
    own.part = part;
    own.module = static_cast<size_t>(part.module);
    own.first_block = next;
    next += static_cast<size_t>(part.num_layers + (part.has_entry ? 1 : 0) + (part.has_exit ? 1 : 0));
    own.end_block = next;
  }
}

bool StageWalk::is_beside(size_t module) const {
  return !plan_.modules[module_].is_encoder() && !plan_.modules[module].is_in_pipeline();
}

bool StageWalk::is_frozen(size_t module) const {
  return plan_.workload.is_frozen(plan_.modules[module].kind);
}

bool StageWalk::has_text_entry() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.part.has_entry && !plan_.modules[part.module].is_encoder(); });
}

ModuleRows StageWalk::rows(size_t module, const MicrobatchLoad& load) const {
  WEFT_CHECK(places_[module].has_value(), "rows of a module that is not here");
  return rows_of(plan_, plan_.modules[module], *places_[module], load);
}

bool StageWalk::has_data(size_t module, const MicrobatchLoad& load) const {
  const ModuleKind kind = plan_.modules[module].kind;
  if (kind == ModuleKind::kLlm) return true;
  if (!is_beside(module)) return load.media.contains(kind);
  const auto places = load.places.find(kind);
  return places != load.places.end() && !places->second.empty();
}

bool StageWalk::needs_gradient(size_t module, const MicrobatchLoad& load) const {
  if (!is_frozen(module)) return true;
  if (plan_.modules[module].is_encoder()) return false;
  for (size_t other = 0; other < plan_.modules.size(); ++other) {
    if (other != module && !is_frozen(other) && has_data(other, load)) return true;
  }
  return false;
}

WalkContext StageWalk::context_of(size_t module, const ModuleRows& rows) const {
  const ModulePlan& settings = plan_.modules[module];
  const int64_t element = element_bytes_of(plan_.precision.compute);
  return {.count = &count_,
          .element_bytes = element,
          .exact_bytes = std::max<int64_t>(4, element),
          .adds_in_place = plan_.precision.reduce == plan_.precision.compute,
          .trains = !is_frozen(module),
          .share = {.tp = settings.tp, .ep = settings.ep, .tp_rank = places_[module]->tp},
          .divides_rows = settings.sequence_parallel && settings.tp > 1,
          .rows = rows.between,
          .whole_rows = rows.whole,
          .segments = rows.segments.lengths,
          .shared = rows.segments.shared};
}

std::vector<StageWalk::FlowBytes> StageWalk::tensors_between(int32_t stage, const MicrobatchLoad& load) const {
  std::vector<FlowBytes> tensors;
  if (stage < 0 || (stage == stage_ && is_last_)) return tensors;
  const bool is_encoder = plan_.modules[module_].is_encoder();
  int32_t llm_begin = 0;
  for (const StagePart& part : all_parts_) {
    if (part.has_entry && !plan_.modules[static_cast<size_t>(part.module)].is_encoder()) llm_begin = part.stage;
  }
  const bool is_in_llm = !is_encoder && llm_begin <= stage;
  for (size_t index = 0; index < plan_.modules.size(); ++index) {
    const bool is_here = is_encoder ? index == module_ : plan_.modules[index].is_in_pipeline();
    if (!is_here || !has_data(index, load)) continue;
    const Module& spec = *plan_.model.find(plan_.modules[index].kind);
    const ModuleRows own = rows(index, load);
    const int64_t bytes = element_bytes_of(plan_.precision.compute);
    if (!plan_.modules[index].is_encoder()) {
      if (is_in_llm) tensors.push_back({index, own.between * spec.width * bytes, needs_gradient(index, load)});
      continue;
    }
    int32_t begin = 0, end = 0;
    for (const StagePart& part : all_parts_) {
      if (static_cast<size_t>(part.module) != index) continue;
      if (part.has_entry) begin = part.stage;
      if (part.has_exit) end = part.stage;
    }
    if (is_in_llm || begin > stage) continue;
    const bool is_done = end <= stage;
    tensors.push_back({index, (is_done ? own.out_between * spec.output_width : own.between * spec.width) * bytes,
                       needs_gradient(index, load)});
  }
  return tensors;
}

template <typename Run>
CountedTensor StageWalk::run_block(size_t block, const WalkContext& context, Run run) {
  weights_.before_forward(block);
  CountedTensor y = run();
  weights_.after_forward(block);
  context.add_step([this, block](const CountedTensor& dy) {
    weights_.reach(block);
    return dy;
  });
  return y;
}

CountedTensor StageWalk::run_layers(const Part& part, CountedTensor x, const ModuleRows& rows,
                                    const std::vector<int64_t>& received, const WalkContext& context) {
  const Module& spec = *plan_.model.find(plan_.modules[part.module].kind);
  const Recompute& recompute = part.part.recompute;
  for (int64_t index = 0; index < part.part.num_layers; ++index) {
    const Block& block = spec.layer_kinds[spec.layers[static_cast<size_t>(part.part.first_layer + index)]];
    const bool is_windowed =
        std::get<Attention>(op_named(block, "attention.core").shape).mask == Mask::kWindowed && rows.windows;
    WalkContext own = context;
    if (is_windowed) {
      own.segments = rows.windows->lengths;
      own.shared = rows.windows->shared;
    }
    own.recomputes_attention = index >= recompute.full && index < recompute.full + recompute.selective;
    LayerWalk layer{.block = block, .is_exchanged = plan_.modules[part.module].ep > 1};
    if (layer.is_exchanged) layer.received_rows = received[static_cast<size_t>(part.part.first_layer + index)];
    const size_t number = part.first_block + (part.part.has_entry ? 1 : 0) + static_cast<size_t>(index);
    x = run_block(number, context, [&] {
      if (index >= recompute.full || context.way == nullptr) return layer.forward(x, own);
      WalkContext once = own;
      once.way = nullptr;
      CountedTensor y = layer.forward(x, once);
      context.add_step([x, layer, own](const CountedTensor& dy) {
        WayBack way;
        WalkContext again = own;
        again.way = &way;
        const CountedTensor made = layer.forward(x, again);
        return way.run(dy);
      });
      return y;
    });
  }
  return x;
}

CountedTensor StageWalk::enter_text(const Part& part, WalkedFlow& flow, const MicrobatchLoad& load,
                                    const WalkContext& context, WalkedVisit& visit) {
  const Module& spec = *plan_.model.find(ModuleKind::kLlm);
  const ModuleRows text = rows(part.module, load);
  std::vector<WalkedMedia> media;
  for (size_t other = 0; other < part.module; ++other) {
    if (!has_data(other, load)) continue;
    const bool trains = !is_frozen(other);
    WalkedMedia& kind = media.emplace_back();
    kind.needs_gradient = trains;
    kind.gradient = &(*visit.media_gradients)[other];
    const Module& encoder = *plan_.model.find(plan_.modules[other].kind);
    if (is_beside(other)) {
      kind.num_rows = flow[other].bytes() / (encoder.output_width * context.element_bytes);
      kind.are_own = context.divides_rows;
      continue;
    }
    const ModuleRows own = rows(other, load);
    WalkContext outside = context_of(other, own);
    visit.media_ways[other] = std::make_unique<WayBack>();
    if (trains && context.way != nullptr) outside.way = visit.media_ways[other].get();
    flow[other] = walk_gather(flow[other], {own.out_between, own.out_whole, encoder.output_width}, outside);
    kind.num_rows = own.out_whole;
    if (plan_.modules[other].cp == 1) continue;
    // Rows go to the ranks whose tokens they replace.
    const auto needed = text.needed.find(encoder.kind);
    kind.num_rows = needed == text.needed.end() ? 0 : needed->second;
    const int64_t width = encoder.output_width, made = own.out_whole;
    const CountedTensor places = outside.make(2 * (made + kind.num_rows) * kIndexBytes);
    if (outside.way != nullptr) visit.kept.push_back(places);
    outside.add_step([made, width, outside](const CountedTensor& dy) {
      const CountedTensor sent = outside.make(dy.bytes());
      CountedTensor back = outside.rows_of(made, width);
      const CountedTensor received = outside.rows_of(made, width);
      return back;
    });
    CountedTensor taken = outside.rows_of(kind.num_rows, width);
    { const CountedTensor sent = outside.rows_of(made, width), received = outside.rows_of(kind.num_rows, width); }
    flow[other] = std::move(taken);
  }
  CountedTensor x = run_block(part.first_block, context, [&] { return walk_text_entry(spec.entry, media, context); });
  for (size_t other = 0; other < part.module; ++other) flow[other].reset();
  return x;
}

WalkedFlow StageWalk::forward(WalkedFlow flow, const MicrobatchLoad& load, const std::vector<int64_t>& received,
                              bool keeps, bool defers, WalkedVisit& visit) {
  flow.resize(plan_.modules.size());
  visit.ways.resize(parts_.size());
  visit.media_ways.resize(plan_.modules.size());
  visit.media_gradients = std::make_shared<WalkedFlow>(plan_.modules.size());
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    const size_t index = part.module;
    if (!has_data(index, load)) {
      for (size_t block = part.first_block; block < part.end_block; ++block) {
        weights_.before_forward(block);
        weights_.after_forward(block);
      }
      continue;
    }
    const Module& spec = *plan_.model.find(plan_.modules[index].kind);
    const ModulePlan& settings = plan_.modules[index];
    const ModuleRows own = rows(index, load);
    WalkContext context = context_of(index, own);
    const bool needs = needs_gradient(index, load);
    if (keeps && needs) {
      visit.ways[p] = std::make_unique<WayBack>();
      context.way = visit.ways[p].get();
      if (defers) context.queue = &visit.queue;
    }
    const SiteRows outside{own.out_between, own.out_whole, spec.output_width};
    CountedTensor x = flow[index];
    if (part.part.has_entry) {
      switch (spec.kind) {
        case ModuleKind::kVision:
          x = run_block(part.first_block, context, [&] { return walk_vision_entry(spec.entry, context); });
          break;
        case ModuleKind::kAudio:
          x = run_block(part.first_block, context, [&] { return walk_audio_entry(spec.entry, own.frames, context); });
          break;
        case ModuleKind::kLlm:
          x = enter_text(part, flow, load, context, visit);
          break;
      }
    }
    flow[index] = x;  // until the layers are through
    {
      CountedTensor rotary;
      const auto& core = std::get<Attention>(op_named(spec.layer_kinds.front(), "attention.core").shape);
      if (spec.kind == ModuleKind::kLlm)
        rotary = walk_text_rotary(own.whole, core.head_dim, plan_.model.modules.size() > 1, context);
      if (spec.kind == ModuleKind::kVision) rotary = walk_vision_rotary(own.whole, core.head_dim, context);
      if (part.part.num_layers > 0 && context.way != nullptr) visit.kept.push_back(rotary);
      x = run_layers(part, std::move(x), own, received, context);
      flow[index] = x;
      if (part.part.has_exit) {
        const size_t last = part.end_block - 1;
        switch (spec.kind) {
          case ModuleKind::kVision:
            x = run_block(last, context, [&] {
              return walk_vision_exit(spec.exit, x, outside, own.windows && settings.cp == 1, context);
            });
            break;
          case ModuleKind::kAudio:
            x = run_block(last, context, [&] { return walk_audio_exit(spec.exit, x, outside, context); });
            break;
          case ModuleKind::kLlm:
            x = run_block(last, context, [&] {
              walk_text_exit(spec.exit, x, own.targets, context);
              return CountedTensor();
            });
            break;
        }
      }
      flow[index] = x;
    }
    // Its sum, which tells whether it is finite, is in single precision.
    if (context.is_half()) const CountedTensor converted = context.make(2 * x.bytes());
    if (plan_.modules[module_].is_encoder() && is_last_) flow[index] = walk_gather(flow[index], outside, context);
  }
  return flow;
}

WalkedFlow StageWalk::backward(WalkedFlow gradients, WalkedVisit& visit) {
  const WalkedFlow roots = gradients;
  gradients.resize(plan_.modules.size());
  for (size_t p = parts_.size(); p-- > 0;) {
    const Part& part = parts_[p];
    if (!visit.ways[p]) continue;
    CountedTensor gradient = std::move(gradients[part.module]);
    gradients[part.module].reset();
    CountedTensor dx = visit.ways[p]->run(std::move(gradient));
    gradients[part.module] = std::move(dx);
    if (!part.part.has_entry || plan_.modules[part.module].is_encoder()) continue;
    gradients[part.module].reset();
    for (size_t other = part.module; other-- > 0;) {
      CountedTensor of_media = std::exchange((*visit.media_gradients)[other], {});
      if (visit.media_ways[other]) of_media = visit.media_ways[other]->run(std::move(of_media));
      if (of_media.is_defined()) gradients[other] = std::move(of_media);
    }
  }
  // What only passed through is copied for its input.
  for (size_t index = 0; index < roots.size(); ++index) {
    if (roots[index].is_defined() && gradients[index].is_same(roots[index]))
      gradients[index] = CountedTensor(count_, roots[index].bytes());
  }
  return gradients;
}

}  // namespace weft
