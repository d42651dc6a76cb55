#include "weft/meaning/stage_calls.h"

#include <algorithm>
#include <numeric>

#include "weft/program/name_weights.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

int64_t num_inside(const std::vector<int64_t>& places, Range range) {
  return std::count_if(places.begin(), places.end(),
                       [&](int64_t place) { return place >= range.begin && place < range.end; });
}

SharedRows rows_of(const EncoderLoad& load, EncoderShare& share) {
  return {.inside = share.inside,
          .outside = share.outside,
          .deal = std::move(share.deal),
          .segments = PackedSegments(load.segments),
          .windows = PackedSegments(load.windows)};
}

}  // namespace

bool RankPortion::has(ModuleKind kind) const {
  return rows.contains(kind) || std::find(from_outside.begin(), from_outside.end(), kind) != from_outside.end();
}

RankPortion portion_of(const Plan& plan, const MicrobatchLoad& load, const ModulePlace& llm, int64_t number) {
  const int64_t cp = llm.plan->cp, rank = llm.context.rank;
  RankPortion portion{.number = number};
  LlmShare share = share_llm(load, cp, rank);
  portion.rows[ModuleKind::kLlm] = {.inside = share.tokens,
                                    .outside = share.tokens,
                                    .deal = std::move(share.deal),
                                    .segments = PackedSegments(load.samples),
                                    .targets = share.targets};
  portion.places = share.places;
  for (const auto& [kind, media] : load.media) {
    EncoderShare encoder = share_encoder(plan, kind, media, cp, rank);
    const auto needed = share.needed.find(kind);
    SharedRows& rows = portion.rows[kind] = rows_of(media, encoder);
    rows.needed = needed != share.needed.end() ? needed->second : RowLists(encoder.made.size());
    rows.made = std::move(encoder.made);
  }
  for (const ModulePlan& module : plan.modules) {
    const auto places = load.places.find(module.kind);
    if (!module.is_in_pipeline() && places != load.places.end() && !places->second.empty())
      portion.from_outside.push_back(module.kind);
  }
  return portion;
}

RankPortion portion_of(const Plan& plan, const EncoderLoad& load, const ModulePlace& encoder, int64_t number) {
  RankPortion portion{.number = number};
  EncoderShare share = share_encoder(plan, encoder.plan->kind, load, encoder.plan->cp, encoder.context.rank);
  portion.rows[encoder.plan->kind] = rows_of(load, share);
  return portion;
}

StageCalls::StageCalls(const Plan& plan, const StepLoad& load, size_t module, const Places& places,
                       const StageContent& content, CallList& calls)
    : plan_(plan),
      load_(load),
      is_encoder_(plan.modules[module].is_encoder()),
      is_last_(content.stage() == parts_of_pipeline(plan, module).back().stage),
      places_(places),
      content_(content),
      calls_(calls),
      trainable_(plan),
      flow_(flow_modules(plan, module)),
      bytes_(static_cast<int64_t>(num_bytes(plan.precision.compute))),
      weights_(plan, places.at(plan.modules[module].kind), content, calls) {}

/// The first block of a module that gradients come to.
int64_t StageCalls::first_backward(ModuleKind kind, const RankPortion& portion) const {
  if (kind == ModuleKind::kLlm) {
    for (const ModulePlan& other : plan_.modules) {
      if (other.is_encoder() && portion.has(other.kind) && trainable_.gives_gradients(other)) return 0;
    }
  }
  return trainable_.first_with_gradients(kind);
}

Traffic StageCalls::expert_rows(const ModulePlace& place, int64_t layer, int64_t microbatch) const {
  size_t router = 0;
  for (int64_t before = 0; before < layer; ++before) router += has_router(block_at(*place.spec, before + 1)) ? 1 : 0;
  const RankGroup& group = place.experts;
  const int64_t first_place = place.routed.rank - group.rank;
  const auto rows_for = [&](int64_t from, int64_t to) {
    const std::vector<int64_t>& chosen =
        load_.routed[router][static_cast<size_t>(first_place + from)][static_cast<size_t>(microbatch)];
    const int64_t here = std::ssize(chosen) / group.size();
    return std::accumulate(chosen.begin() + to * here, chosen.begin() + (to + 1) * here, int64_t{0});
  };
  Traffic rows;
  for (int64_t other = 0; other < group.size(); ++other) {
    if (other == group.rank) continue;
    rows += {.sent = rows_for(group.rank, other), .received = rows_for(other, group.rank)};
  }
  return rows;
}

StageCalls::Item StageCalls::block_item(const ModulePlace& place, const RankPortion& portion, int64_t at,
                                        size_t number) const {
  const ModuleKind kind = place.plan->kind;
  const int64_t first = first_backward(kind, portion);
  Item item{.place = &place,
            .block = &block_at(*place.spec, at),
            .rows = &portion.rows.at(kind),
            .number = number,
            .gradients = trainable_.gradients_of(kind, at, first < at),
            .has_gradient = first <= at};
  if (item.block->program) {
    const ProgramMeaning meaning(*item.block->program,
                                 {.tp = place.plan->tp,
                                  .divides_rows = place.divides_rows(),
                                  .reduces_first = reduces_first(plan_.precision.compute),
                                  .ulysses = place.plan->cp_ulysses,
                                  .ring = place.plan->cp / place.plan->cp_ulysses},
                                 trained_values(*item.block, item.gradients));
    item.of_program = meaning.exchanges(meaning.lengths(meaning.samples_of(item.rows->inside)), bytes_);
  }
  if (at == 0) return item;
  item.exchanges = forward_exchanges(*place.spec, *item.block, sharing_of(*place.plan, load_.balances_experts));
  if (place.plan->ep > 1 && has_router(*item.block)) item.expert_rows = expert_rows(place, at - 1, portion.number);
  return item;
}

void StageCalls::add_output(const ModulePlace& encoder, const RankPortion& portion, std::vector<Item>& items) const {
  const bool has_gradient = trainable_.gives_gradients(*encoder.plan);
  items.push_back(
      {.place = &encoder,
       .block = &encoder.spec->exit,
       .rows = &portion.rows.at(encoder.plan->kind),
       .exchanges = output_exchanges(*encoder.spec, sharing_of(*encoder.plan, false), output_use(plan_, *encoder.plan)),
       .gradients = std::vector<OpGradients>(encoder.spec->exit.ops.size(), {.of_output = has_gradient}),
       .has_gradient = has_gradient});
  items.back().gradients.back().of_input = has_gradient;
}

/// The embedding, among whose rows those of encoders are placed.
void StageCalls::add_llm_entry(const ModulePlace& llm, const RankPortion& portion, size_t number,
                               std::vector<Item>& items) const {
  Item entry = block_item(llm, portion, 0, number);
  if (entry.block->program) {
    items.push_back(std::move(entry));
    return;
  }
  std::array<bool, 3> has_rows{};
  for (const ModulePlan& module : plan_.modules) {
    const bool has = has_rows[static_cast<size_t>(module.kind)] = portion.has(module.kind);
    if (module.is_encoder() && module.is_in_pipeline() && has) add_output(places_.at(module.kind), portion, items);
  }
  const EntryPlacing placing = entry_placing(plan_, trainable_, has_rows);
  entry.exchanges = entry_exchanges(*llm.spec, sharing_of(*llm.plan, false), placing.places_whole_rows);
  entry.gradients.front() = {.of_output = trainable_.trains_table(), .of_input = placing.needs_gradient};
  items.push_back(std::move(entry));
}

void StageCalls::add_part(const StagePart& part, const RankPortion& portion, size_t& number,
                          std::vector<Item>& items) const {
  const ModulePlace& place = places_.at(plan_.modules[static_cast<size_t>(part.module)].kind);
  if (!portion.rows.contains(place.plan->kind)) {
    // Its weights come and go all the same.
    const int64_t blocks = part.num_layers + (part.has_entry ? 1 : 0) + (part.has_exit ? 1 : 0);
    for (int64_t i = 0; i < blocks; ++i) items.push_back({.number = number++});
    return;
  }
  const bool is_llm = place.plan->kind == ModuleKind::kLlm;
  if (part.has_entry && is_llm) add_llm_entry(place, portion, number++, items);
  if (part.has_entry && !is_llm) items.push_back(block_item(place, portion, 0, number++));
  const std::vector<BlockRecompute> recomputes = part.recomputes();
  for (int64_t i = 0; i < part.num_layers; ++i) {
    items.push_back(block_item(place, portion, part.first_layer + i + 1, number++));
    items.back().recompute = recomputes[static_cast<size_t>(i)];
  }
  if (part.has_exit) {
    items.push_back(block_item(place, portion, num_blocks(*place.spec) - 1, number++));
    items.back().recompute = place.plan->exit_recompute();
  }
  if (is_encoder_ && is_last_) add_output(place, portion, items);
}

std::vector<StageCalls::Item> StageCalls::items_of(const RankPortion& portion) const {
  std::vector<Item> items;
  size_t number = 0;
  for (const StagePart& part : content_.parts()) add_part(part, portion, number, items);
  return items;
}

void StageCalls::add(const Item& item, const BlockExchange& exchange) {
  ExchangeCalls(*item.place, bytes_).add(exchange, *item.block, *item.rows, item.expert_rows, calls_);
}

void StageCalls::add_program(const Item& item, std::initializer_list<BlockPass> passes) {
  for (const ProgramExchange& each : item.of_program) {
    if (std::find(passes.begin(), passes.end(), each.pass) != passes.end())
      add_calls(each, *item.place, *item.rows, calls_);
  }
}

void StageCalls::backward_program(const Item& item, DeferredCalls* deferred) {
  if (item.of_program.empty()) return;
  // Behind a program that nobody wants gradients of, experts may be trained.
  const size_t num_ops = num_in_program(*item.block);
  if (num_ops < item.block->ops.size() && !item.gradients[num_ops - 1].of_output) return;
  if (deferred == nullptr) return add_program(item, {BlockPass::kBackwardInput, BlockPass::kBackwardWeight});
  add_program(item, {BlockPass::kBackwardInput});
  deferred->push_back([this, item] { add_program(item, {BlockPass::kBackwardWeight}); });
}

void StageCalls::forward(const RankPortion& portion) {
  for (const Item& item : items_of(portion)) {
    if (item.number) weights_.before_forward(*item.number);
    add_program(item, {BlockPass::kForward});
    for (const BlockExchange& exchange : item.exchanges) add(item, exchange);
    if (item.number) weights_.after_forward(*item.number);
  }
}

void StageCalls::backward(const RankPortion& portion, DeferredCalls* deferred) {
  std::vector<Item> items = items_of(portion);
  weights_.begin_backward(deferred);
  for (size_t i = items.size(); i-- > 0;) {
    const Item& item = items[i];
    if (!item.has_gradient) continue;
    if (item.number) weights_.reach(*item.number);
    if (item.recompute == BlockRecompute::kFull) add_program(item, {BlockPass::kForward});
    for (const BlockExchange& exchange : backward_exchanges(item.exchanges, item.gradients, item.recompute)) {
      if (deferred != nullptr && exchange.pass == BlockPass::kBackwardWeight) {
        // The portion outlives the step's calls.
        deferred->push_back([this, exchange, place = item.place, block = item.block, rows = item.rows] {
          ExchangeCalls(*place, bytes_).add(exchange, *block, *rows, {}, calls_);
        });
      } else {
        add(item, exchange);
      }
    }
    backward_program(item, deferred);
  }
  weights_.end_backward();
}

std::vector<FlowRows> StageCalls::flow_behind(int32_t stage, const RankPortion& portion) const {
  std::vector<FlowRows> tensors;
  const auto has_data = [&](size_t module) { return portion.has(plan_.modules[module].kind); };
  for (const FlowPart& part : flow_after(flow_, stage, has_data)) {
    const ModuleKind kind = plan_.modules[part.module].kind;
    const bool is_taken = part.kind == FlowKind::kTaken;
    const ModulePlace& place = places_.at(is_taken ? ModuleKind::kLlm : kind);
    const SharedRows& own = portion.rows.at(place.plan->kind);
    FlowRows& tensor = tensors.emplace_back();
    tensor = {.place = &place, .width = part.width, .needs_gradient = part.needs_gradient};
    if (is_taken) {
      tensor.rows = std::ssize(portion.places.at(kind));
    } else {
      tensor.rows = part.kind == FlowKind::kOutput ? own.outside : own.inside;
    }
    // Where rows are divided, parts that are yet to be added lie with their tokens.
    tensor.sent = is_taken && place.divides_rows()
                      ? num_inside(portion.places.at(kind), place.rows_between(own.inside))
                      : rows_sent(tensor.rows, place.tensor.size(), place.tensor.rank).size();
  }
  return tensors;
}

void StageCalls::join(const FlowRows& tensor) {
  ExchangeCalls(*tensor.place, bytes_).add_change(RowChange::kJoin, tensor.rows, tensor.width, false, calls_);
}

}  // namespace weft
