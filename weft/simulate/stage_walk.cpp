#include "weft/simulate/stage_walk.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/cost/program_walk.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/row_changes.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

/// By operator of a block.
std::vector<OpNeeds> needs_of(const Trainable& trainable, const Module& spec, int64_t place, bool has_input_gradient) {
  std::vector<OpNeeds> needs;
  for (const OpGradients& each : trainable.gradients_of(spec.kind, place, has_input_gradient))
    needs.push_back(
        {.of_output = each.of_output, .of_input = each.of_input, .of_weight = each.of_weight, .of_bias = each.of_bias});
  return needs;
}

CountedTensor walk_layer(const LayerWalk& layer, const CountedTensor& x, const WalkContext& context) {
  if (!layer.block.program) return layer.forward(x, context);
  const CountedTensor rows = walk_program_block(layer, x, context);
  return num_in_program(layer.block) < layer.block.ops.size() ? layer.forward_mlp(rows, context) : rows;
}

}  // namespace

StageWalk::StageWalk(const Plan& plan, size_t module, const std::vector<std::optional<RankPlace>>& places,
                     const StageContent& content, ByteCount& count)
    : plan_(plan),
      module_(module),
      stage_(content.stage()),
      is_last_(stage_ == parts_of_pipeline(plan, module).back().stage),
      trainable_(plan),
      flow_(flow_modules(plan, module)),
      places_(places),
      count_(count),
      weights_(plan, plan.modules[module], content, count) {
  size_t next = 0;
  for (const StagePart& part : content.parts()) {
    Part& own = parts_.emplace_back();
    own.part = part;
    own.module = static_cast<size_t>(part.module);
    own.first_block = next;
    next += static_cast<size_t>(part.num_layers + (part.has_entry ? 1 : 0) + (part.has_exit ? 1 : 0));
    own.end_block = next;
  }
}

bool StageWalk::is_beside(size_t module) const {
  return flow_[module].is_beside;
}

bool StageWalk::takes_rows(size_t encoder, const MicrobatchLoad& load) const {
  const bool has_llm_entry = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return part.part.has_entry && !plan_.modules[part.module].is_encoder();
  });
  return has_llm_entry && is_beside(encoder) && has_data(encoder, load);
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

WalkContext StageWalk::context_of(size_t module, const ModuleRows& rows) const {
  const ModulePlan& settings = plan_.modules[module];
  const int64_t element = element_bytes_of(plan_.precision.compute);
  return {.count = &count_,
          .element_bytes = element,
          .exact_bytes = std::max<int64_t>(4, element),
          .adds_in_place = plan_.precision.reduce == plan_.precision.compute,
          .share = share_of(settings, places_[module]->tp),
          .divides_rows = weft::divides_rows(settings),
          .rows = rows.between,
          .whole_rows = rows.whole,
          .segments = rows.segments.lengths,
          .shared = rows.segments.shared};
}

std::vector<StageWalk::FlowBytes> StageWalk::tensors_between(int32_t stage, const MicrobatchLoad& load) const {
  std::vector<FlowBytes> tensors;
  if (stage < 0 || (stage == stage_ && is_last_)) return tensors;
  const int64_t bytes = element_bytes_of(plan_.precision.compute);
  for (const FlowPart& part : flow_after(flow_, stage, [&](size_t module) { return has_data(module, load); })) {
    const bool is_taken = part.kind == FlowKind::kTaken;
    const size_t owner = is_taken ? plan_.modules.size() - 1 : part.module;
    const ModulePlan& module = plan_.modules[owner];
    const ModuleRows own = rows(owner, load);
    const bool is_output = part.kind == FlowKind::kOutput;
    int64_t between = is_output ? own.out_between : own.between;
    int64_t sent = rows_sent(is_output ? own.out_whole : own.whole, module.tp, places_[owner]->tp).size();
    if (is_taken) {
      const ModuleKind kind = plan_.modules[part.module].kind;
      between = own.needed_between.contains(kind) ? own.needed_between.at(kind) : 0;
      sent = module.sequence_parallel ? between : rows_sent(between, module.tp, places_[owner]->tp).size();
    }
    tensors.push_back({.module = part.module,
                       .bytes = between * part.width * bytes,
                       .needs_gradient = part.needs_gradient,
                       .sent_bytes = sent * part.width * bytes,
                       .is_joined = repeats_rows(module),
                       .width = part.width});
  }
  return tensors;
}

template <typename Run>
CountedTensor StageWalk::run_block(size_t block, bool needs_gradient, const WalkContext& context, Run run) {
  weights_.before_forward(block);
  CountedTensor y = run();
  weights_.after_forward(block);
  context.going_back(needs_gradient).add_step([this, block](const CountedTensor& dy) {
    weights_.reach(block);
    return dy;
  });
  return y;
}

WalkedBlock StageWalk::walked(const Passage& passage, int64_t place) const {
  return {.block = block_at(passage.spec, place),
          .needs = needs_of(trainable_, passage.spec, place, passage.needs_gradient)};
}

void StageWalk::run_layers(Passage& passage, WalkedFlow& flow, const std::vector<int64_t>& received,
                           WalkedVisit& visit) {
  const Part& part = passage.part;
  const WalkContext& context = passage.context;
  const ModuleRows& rows = passage.rows;
  const Module& spec = passage.spec;
  CountedTensor& rotary = passage.rotary;
  // A user's own program says all that it computes.
  const bool is_program = spec.entry.program != nullptr;
  if (!is_program) {
    const auto& first_core = std::get<Attention>(op_named(spec.distinct_layers.front(), "attention.core").shape);
    const bool turns = find_op(spec.distinct_layers.front(), "attention.rotary") != nullptr;
    if (spec.kind == ModuleKind::kLlm) {
      const bool has_sections = !plan_.model.numbers.llm.rope.sections.empty();
      rotary = walk_llm_rotary(rows.whole, first_core.head_dim, has_sections, context);
    }
    if (spec.kind == ModuleKind::kVision && turns)
      rotary = walk_vision_rotary(rows.whole, first_core.head_dim, context);
  }
  bool keeps_rotary = false;
  const std::vector<BlockRecompute> recomputes = part.part.recomputes();
  CountedTensor x = flow[part.module];
  for (int64_t index = 0; index < part.part.num_layers; ++index) {
    const int64_t place = part.part.first_layer + index + 1;
    LayerWalk layer{walked(passage, place), plan_.modules[part.module].ep > 1};
    if (layer.is_exchanged) layer.received_rows = received[static_cast<size_t>(place - 1)];
    const Op* core = is_program ? nullptr : &op_named(layer.block, "attention.core");
    WalkContext own = context;
    if (core != nullptr && std::get<Attention>(core->shape).mask == Mask::kWindowed && rows.windows) {
      own.segments = rows.windows->lengths;
      own.shared = rows.windows->shared;
    }
    const BlockRecompute what = recomputes[static_cast<size_t>(index)];
    own.recomputes_attention = what == BlockRecompute::kAttention;
    const bool goes_back = layer.needs.back().of_output;
    const size_t number = part.first_block + (part.part.has_entry ? 1 : 0) + static_cast<size_t>(index);
    x = run_block(number, goes_back, context, [&] {
      if (what != BlockRecompute::kFull || context.way == nullptr || !goes_back) return walk_layer(layer, x, own);
      WalkContext once = own;
      once.way = nullptr;
      CountedTensor y = walk_layer(layer, x, once);
      context.add_step([x, layer, own](const CountedTensor& dy) {
        WayBack way;
        WalkContext again = own;
        again.way = &way;
        const CountedTensor made = walk_layer(layer, x, again);
        return way.run(dy);
      });
      return y;
    });
    if (core != nullptr) keeps_rotary |= what == BlockRecompute::kFull ? goes_back : layer.needs_of(*core).of_output;
    passage.needs_gradient = goes_back;
    x = behind_layer(passage, place - 1, std::move(x));
  }
  if (keeps_rotary && context.way != nullptr) visit.kept.push_back(rotary);
  flow[part.module] = std::move(x);
}

/// An inline encoder's rows as the llm takes them in.
CountedTensor StageWalk::walk_output(const CountedTensor& x, const Module& encoder, const ModuleRows& rows,
                                     bool divides_parts, const WalkContext& context) {
  const SiteRows sites{rows.out_between, rows.out_whole, encoder.output_width};
  if (encoder.output_parts == 1 || !divides_parts || !context.is_spread()) return walk_gather(x, sites, context);
  // The first part is gathered and the others enter, each by itself; then they are put together again.
  const int64_t width = encoder.output_width / encoder.output_parts, others = encoder.output_width - width;
  const int64_t between = context.divides_rows ? rows.out_between : rows.out_whole;
  context.add_step([=](const CountedTensor&) {
    const CountedTensor whole = context.rows_of(rows.out_whole, others);
    const CountedTensor apart = context.rows_of(between, encoder.output_width);
    return context.rows_of(between, encoder.output_width);
  });
  CountedTensor first, entered;
  {
    const CountedTensor part = context.rows_of(between, width);
    first = context.divides_rows ? context.rows_of(rows.out_whole, width) : part;
  }
  {
    const CountedTensor part = context.rows_of(between, others);
    entered = context.divides_rows ? context.rows_of(rows.out_whole, others) : part;
  }
  return context.rows_of(rows.out_whole, encoder.output_width);
}

CountedTensor StageWalk::enter_llm(Passage& passage, WalkedFlow& flow, const MicrobatchLoad& load, WalkedVisit& visit) {
  const WalkContext& context = passage.context;
  const Part& part = passage.part;
  std::vector<WalkedMedia> media;
  bool needs_gradient = false;
  for (size_t other = 0; other < part.module; ++other) {
    if (!has_data(other, load)) continue;
    const bool trains = trainable_.gives_gradients(plan_.modules[other]);
    needs_gradient |= trains;
    WalkedMedia& kind = media.emplace_back();
    kind.needs_gradient = trains;
    kind.gradient = &(*visit.media_gradients)[other];
    const Module& encoder = *plan_.model.find(plan_.modules[other].kind);
    const auto found = passage.rows.needed_between.find(encoder.kind);
    const int64_t num_between = found == passage.rows.needed_between.end() ? 0 : found->second;
    if (encoder.output_parts > 1) {
      passage.added.push_back(
          {.encoder = other, .num_rows = num_between, .num_parts = encoder.output_parts - 1, .needs_gradient = trains});
    }
    if (is_beside(other)) {
      kind.num_rows = num_between;  // what is taken may be a part of a macro batch's rows
      kind.are_own = context.divides_rows;
      continue;
    }
    const ModuleRows own = rows(other, load);
    WalkContext outside = context_of(other, own);
    visit.media_ways[other] = std::make_unique<WayBack>();
    if (trains && context.way != nullptr) outside.way = visit.media_ways[other].get();
    flow[other] = walk_output(flow[other], encoder, own, context.divides_rows, outside);
    kind.num_rows = own.out_whole;
    if (plan_.modules[other].cp == 1) continue;
    // Rows go to the ranks whose tokens they replace.
    const auto needed = passage.rows.needed.find(encoder.kind);
    kind.num_rows = needed == passage.rows.needed.end() ? 0 : needed->second;
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
  passage.needs_gradient = needs_gradient;
  const WalkedBlock entry = walked(passage, 0);
  passage.needs_gradient = entry.needs.back().of_output;
  CountedTensor x = run_block(part.first_block, passage.needs_gradient, context, [&] {
    return entry.block.program ? walk_program_block(entry, {}, context) : walk_llm_entry(entry, media, context);
  });
  for (WalkedParts& added : passage.added) {
    added.rows = flow[added.encoder];
    // Of rows that are whole, those of this rank's tokens are copied.
    if (context.divides_rows && !is_beside(added.encoder))
      added.rows = context.rows_of(added.num_rows * added.num_parts, passage.spec.width);
  }
  for (size_t other = 0; other < part.module; ++other) flow[other].reset();
  return x;
}

void StageWalk::take_given(Passage& passage, WalkedFlow& flow, const std::vector<FlowBytes>& given) {
  const WalkContext& context = passage.context;
  const int64_t width = passage.spec.width;
  CountedTensor& x = flow[passage.part.module];
  for (const FlowBytes& tensor : given) {
    if (tensor.module == passage.part.module) {
      const int64_t beside = tensor.width / width - 1;
      if (beside == 0) continue;
      for (int64_t i = 0; i < beside; ++i) passage.branches.push_back({.rows = x, .is_view = true});
      x = context.rows_of(passage.rows.between, width);
      std::vector<std::shared_ptr<CountedTensor>> gradients;
      for (const WalkedLayerRows& branch : passage.branches) gradients.push_back(branch.gradient);
      context.going_back(tensor.needs_gradient)
          .add_step([gradients, context, bytes = tensor.bytes](const CountedTensor&) {
            CountedTensor all = context.make(bytes);
            for (const auto& gradient : gradients) gradient->reset();
            return all;
          });
    } else if (passage.spec.kind == ModuleKind::kLlm) {
      passage.added.push_back({.encoder = tensor.module,
                               .num_rows = tensor.bytes / (tensor.width * context.element_bytes),
                               .first_layer = passage.part.part.first_layer,
                               .num_parts = tensor.width / width,
                               .needs_gradient = tensor.needs_gradient,
                               .rows = std::exchange(flow[tensor.module], {})});
    }
  }
}

CountedTensor StageWalk::behind_layer(Passage& passage, int64_t layer, CountedTensor x) {
  const WalkContext& context = passage.context;
  const int64_t width = passage.spec.width;
  for (const WalkedParts& added : passage.added) {
    if (layer < added.first_layer || layer >= added.first_layer + added.num_parts) continue;
    passage.needs_gradient |= added.needs_gradient;
    context.going_back(added.needs_gradient)
        .add_step([gradients = added.gradients, num_rows = added.num_rows, width, context](const CountedTensor& dy) {
          gradients->push_back(context.rows_of(num_rows, width));
          return dy;
        });
    x = context.rows_of(passage.rows.between, width);
  }
  const std::vector<int64_t> branches = branch_layers(passage.spec);
  if (std::find(branches.begin(), branches.end(), layer) == branches.end()) return x;
  const WalkedLayerRows& branch = passage.branches.emplace_back(WalkedLayerRows{.rows = x});
  const int64_t bytes = passage.rows.between * width * context.element_bytes;
  context.going_back(passage.needs_gradient)
      .add_step([gradient = branch.gradient, bytes, context](const CountedTensor& dy) {
        CountedTensor first = std::exchange(*gradient, {});
        // Behind a stage's last layer both are parts of what the next stage sent, which are not added to in place.
        const bool are_whole = first.bytes() == bytes && dy.bytes() == bytes;
        if (first.is_defined() && dy.is_defined() && !are_whole) return context.make(bytes);
        return added_gradient(std::move(first), dy, context);
      });
  return x;
}

void StageWalk::pass_on(Passage& passage, WalkedFlow& flow, WalkedVisit& visit) {
  const WalkContext& context = passage.context;
  const StagePart& part = passage.part.part;
  const int64_t width = passage.spec.width;
  for (WalkedParts& added : passage.added) {
    const int64_t later = added.first_layer + added.num_parts - (part.first_layer + part.num_layers);
    if (later > 0) flow[added.encoder] = context.rows_of(added.num_rows, later * width);
    added.rows.reset();
    if (context.way != nullptr && added.needs_gradient) visit.added.push_back(added);
  }
  if (part.has_exit || passage.branches.empty()) return;
  CountedTensor& x = flow[passage.part.module];
  x = context.rows_of(passage.rows.between, (1 + std::ssize(passage.branches)) * width);
  std::vector<std::shared_ptr<CountedTensor>> gradients;
  for (const WalkedLayerRows& branch : passage.branches) gradients.push_back(branch.gradient);
  context.going_back(passage.needs_gradient).add_step([gradients](const CountedTensor& dy) {
    for (const auto& gradient : gradients) *gradient = dy;
    return dy;
  });
}

void StageWalk::enter(Passage& passage, WalkedFlow& flow, const MicrobatchLoad& load, WalkedVisit& visit) {
  const Part& part = passage.part;
  const WalkContext& context = passage.context;
  if (passage.spec.kind == ModuleKind::kLlm) {
    flow[part.module] = enter_llm(passage, flow, load, visit);
    return;
  }
  const WalkedBlock entry = walked(passage, 0);
  passage.needs_gradient = entry.needs.back().of_output;
  flow[part.module] = run_block(part.first_block, passage.needs_gradient, context, [&] {
    if (find_op(passage.spec.entry, "class_token") != nullptr) return walk_tower_entry(entry, context);
    return passage.spec.kind == ModuleKind::kVision ? walk_vision_entry(entry, context)
                                                    : walk_audio_entry(entry, passage.rows.frames, context);
  });
}

void StageWalk::finish(Passage& passage, WalkedFlow& flow) {
  const Part& part = passage.part;
  const WalkContext& context = passage.context;
  const ModuleRows& rows = passage.rows;
  const Module& spec = passage.spec;
  const WalkedBlock exit = walked(passage, num_blocks(spec) - 1);
  const bool goes_back =
      std::any_of(exit.needs.begin(), exit.needs.end(), [](const OpNeeds& needs) { return needs.of_output; });
  const SiteRows outside{rows.out_between, rows.out_whole, spec.output_width / spec.output_parts};
  CountedTensor& x = flow[part.module];
  x = run_block(part.end_block - 1, goes_back, context, [&] {
    if (spec.kind == ModuleKind::kAudio) return walk_audio_exit(exit, x, outside, context);
    if (find_op(spec.entry, "class_token") != nullptr) return walk_tower_exit(exit, x, spec.width, outside, context);
    if (spec.kind == ModuleKind::kVision) {
      const bool reorders = rows.windows && plan_.modules[part.module].cp == 1;
      return walk_vision_exit(exit, x, passage.branches, outside, reorders, context);
    }
    if (exit.block.program) {
      walk_program_block(exit, x, context);
    } else {
      walk_llm_exit(exit, x, rows.targets, plan_.modules[part.module].recompute_logits, context);
    }
    return CountedTensor();
  });
  passage.needs_gradient = goes_back;
}

WalkedFlow StageWalk::forward(WalkedFlow flow, const MicrobatchLoad& load, const std::vector<int64_t>& received,
                              bool keeps, bool defers, WalkedVisit& visit) {
  flow.resize(plan_.modules.size());
  visit.ways.clear();
  visit.ways.resize(parts_.size());
  visit.added.clear();
  visit.media_ways.clear();
  visit.media_ways.resize(plan_.modules.size());
  visit.media_gradients = std::make_shared<WalkedFlow>(plan_.modules.size());
  const std::vector<FlowBytes> given = tensors_in(load);
  for (size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    if (!has_data(part.module, load)) {
      for (size_t block = part.first_block; block < part.end_block; ++block) {
        weights_.before_forward(block);
        weights_.after_forward(block);
      }
      continue;
    }
    const Module& spec = *plan_.model.find(plan_.modules[part.module].kind);
    const ModuleRows own = rows(part.module, load);
    Passage passage{.part = part, .spec = spec, .rows = own, .context = context_of(part.module, own)};
    for (const FlowBytes& tensor : given) {
      if (tensor.module == part.module && !part.part.has_entry) passage.needs_gradient = tensor.needs_gradient;
    }
    WalkContext& context = passage.context;
    if (keeps) {
      visit.ways[p] = std::make_unique<WayBack>();
      context.way = visit.ways[p].get();
      if (defers) context.queue = &visit.queue;
    }
    if (part.part.has_entry) {
      enter(passage, flow, load, visit);
    } else {
      take_given(passage, flow, given);
    }
    run_layers(passage, flow, received, visit);
    if (part.part.has_exit) finish(passage, flow);
    pass_on(passage, flow, visit);
    passage.rotary.reset();
    if (plan_.modules[module_].is_encoder() && is_last_) {
      flow[part.module] = walk_gather(flow[part.module], {own.out_between, own.out_whole, spec.output_width},
                                      context.going_back(passage.needs_gradient));
    }
    // Its sum, which tells whether it is finite, is in single precision.
    if (context.is_half()) const CountedTensor converted = context.make(2 * flow[part.module].bytes());
  }
  return flow;
}

/// Gradients of the parts that layers here and behind added become one.
void StageWalk::join_parts(const Part& part, WalkedFlow& gradients, WalkedVisit& visit) {
  const int64_t width = plan_.model.find(plan_.modules[part.module].kind)->width;
  const int64_t row_bytes = width * element_bytes_of(plan_.precision.compute);
  for (WalkedParts& added : visit.added) {
    CountedTensor& first = (*visit.media_gradients)[added.encoder];
    const Module& encoder = *plan_.model.find(plan_.modules[added.encoder].kind);
    int64_t rows = added.num_rows, num_parts = added.num_parts;
    std::vector<CountedTensor> whole;
    if (part.part.has_entry) {
      rows = first.bytes() / row_bytes;
      num_parts = encoder.output_parts;
      // Gradients of some rows among those of all.
      if (rows > added.num_rows) whole.assign(1, CountedTensor(count_, rows * added.num_parts * row_bytes));
    }
    CountedTensor all(count_, rows * num_parts * row_bytes);
    added.gradients->clear();
    gradients[added.encoder].reset();
    (part.part.has_entry ? first : gradients[added.encoder]) = std::move(all);
  }
  visit.added.clear();
}

WalkedFlow StageWalk::backward(WalkedFlow gradients, WalkedVisit& visit) {
  const WalkedFlow roots = gradients;
  gradients.resize(plan_.modules.size());
  for (size_t p = parts_.size(); p-- > 0;) {
    const Part& part = parts_[p];
    if (!visit.ways[p] || visit.ways[p]->is_empty()) continue;
    CountedTensor gradient = std::exchange(gradients[part.module], {});
    gradients[part.module] = visit.ways[p]->run(std::move(gradient));
    if (!plan_.modules[part.module].is_encoder()) join_parts(part, gradients, visit);
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
