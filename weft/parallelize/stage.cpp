#include "weft/parallelize/stage.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "weft/base/check.h"
#include "weft/layers/recompute.h"
#include "weft/mesh/head_share.h"
#include "weft/models/context_share.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

void deal_heads(std::vector<TransformerLayer>& layers, const TensorShare& share) {
  for (TransformerLayer& layer : layers) {
    if (!layer.attention.qkv) continue;  // its program deals them out
    const HeadShare heads = share_of_heads(layer.attention.heads, share.num_ranks, share.rank);
    layer.attention.first_head = heads.first_head;
    layer.attention.heads.heads = heads.num_heads;
    layer.attention.heads.kv_heads = heads.num_kv_heads;
  }
}

/// Whether an encoder's rows replace tokens, on this rank or on another one that shares the microbatch.
bool has_places(ModuleKind kind, const Inputs& inputs) {
  return inputs.context ? inputs.context->media(kind).num_rows > 0 : inputs.places(kind).size(0) > 0;
}

/// The name of a weight that a parameter is made of; those of one parameter are trained together.
const std::string& first_name(const Parameter& parameter) {
  const auto& pieces = parameter.spec.pieces;
  const auto named =
      std::find_if(pieces.begin(), pieces.end(), [](const WeightPiece& piece) { return !piece.name.empty(); });
  WEFT_CHECK(named != pieces.end(), "a parameter without a name");
  return named->name;
}

/// Runs a block between what others do around it.
template <typename Block>
at::Tensor run_block(const BlockHooks* hooks, size_t index, const Block& block) {
  if (hooks == nullptr) return block();
  hooks->before_forward(index);
  const at::Tensor y = block();
  hooks->after_forward(index);
  if (y.requires_grad()) y.register_hook([hooks, index](const at::Tensor&) { hooks->before_backward(index); });
  return y;
}

/// Something of a block that needs a gradient, if anything does.
at::Tensor anchor_of(const StageBlock& block, const at::Tensor& x) {
  for (const ParameterPtr& parameter : block.parameters) {
    if (parameter->is_trainable()) return parameter->value;
  }
  return x;
}

/// Runs layers, each with what it recomputes. `behind` says what becomes of the rows that one gave.
template <typename Layer, typename Behind>
at::Tensor run_layers(const std::vector<BlockRecompute>& recomputes, at::Tensor x,
                      const std::vector<StageBlock>& blocks, const Layer& layer, const Behind& behind,
                      const BlockHooks* hooks, size_t first_block) {
  for (int64_t index = 0; index < static_cast<int64_t>(recomputes.size()); ++index) {
    const BlockRecompute what = recomputes[static_cast<size_t>(index)];
    const at::Tensor anchor = anchor_of(blocks[first_block + static_cast<size_t>(index)], x);
    x = run_block(hooks, first_block + static_cast<size_t>(index), [&] {
      return what == BlockRecompute::kFull && at::GradMode::is_enabled()
                 ? recomputed([layer, index](const at::Tensor& rows) { return layer(index, rows, false); }, x, anchor)
                 : layer(index, x, what == BlockRecompute::kAttention);
    });
    x = behind(index, x);
  }
  return x;
}

}  // namespace

StageModel::StageModel(const Settings& settings, const TensorParallels& tensor_parallel)
    : stage_(settings.stage),
      is_encoder_(settings.plan.modules[settings.module].is_encoder()),
      options_(settings.options),
      type_(c10::typeMetaToScalarType(settings.options.dtype())),
      loss_(settings.loss),
      context_(&settings.context) {
  const Plan& plan = settings.plan;
  balance_scale_ =
      settings.numbers.llm.balance_coefficient / static_cast<double>(plan.schedule.microbatches * plan.llm().dp);
  const std::vector<StagePart> parts = parts_of_pipeline(plan, settings.module);
  is_last_ = stage_ == parts.back().stage;
  set_routes(settings, tensor_parallel);
  const TensorShare share = tensor_parallel[settings.module]->share();
  const TensorShare experts =
      settings.experts ? TensorShare{settings.experts->size(), settings.experts->rank()} : TensorShare{};
  experts_ = settings.experts;
  balance_ = settings.balance;
  experts_over_tp_ = plan.modules[settings.module].experts_over_tp;
  CutParameters maker(settings.options, share, experts, experts_over_tp_ ? TensorShare{} : share);
  const Trainable trainable(plan);
  for (const StagePart& part : parts) {
    const ModuleRoute& route = routes_[static_cast<size_t>(part.module)];
    if (part.stage != stage_) continue;
    const Module& module = *plan.model.find(route.kind);
    const BlockRange blocks{.has_entry = part.has_entry,
                            .first_layer = part.first_layer,
                            .num_layers = part.num_layers,
                            .has_exit = part.has_exit};
    const size_t first_parameter = maker.all().size();
    const size_t first_begin = maker.block_begins().size();
    PartModel model{.part = part, .kind = route.kind};
    model.part.recompute = {};  // the plan's, which need not outlive the stage
    model.recomputes = part.recomputes();
    model.recomputes_logits = plan.modules[static_cast<size_t>(part.module)].recompute_logits;
    model.network = make_network(module, settings.numbers, blocks, maker);
    deal_heads(model.network->layers(), share);
    for (size_t i = first_parameter; i < maker.all().size(); ++i) {
      const Parameter& parameter = *maker.all()[i];
      if (!trainable.is_trained(route.kind, first_name(parameter))) parameter.value.set_requires_grad(false);
    }
    model.network->place(route.tensor_parallel->groups(), c10::typeMetaToScalarType(settings.options.dtype()),
                         route.tensor_parallel->divides_rows());
    list_blocks(model, trainable, num_blocks(module) - 1, maker, first_parameter, first_begin);
    has_divided_rows_.resize(maker.all().size(), route.tensor_parallel->divides_rows());
    parts_.push_back(std::move(model));
  }
  parameters_ = maker.all();
}

void StageModel::set_routes(const Settings& settings, const TensorParallels& tensor_parallel) {
  const Plan& plan = settings.plan;
  flow_ = flow_modules(plan, settings.module);
  routes_.resize(plan.modules.size());
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModuleKind kind = plan.modules[index].kind;
    const Module& module = *plan.model.find(kind);
    routes_[index] = {.kind = kind,
                      .is_beside = flow_[index].is_beside,
                      .width = module.width,
                      .output_parts = module.output_parts,
                      .branches = branch_layers(module),
                      .tensor_parallel = tensor_parallel[index].get()};
  }
}

void StageModel::list_blocks(PartModel& model, const Trainable& trainable, int64_t exit_place,
                             const CutParameters& maker, size_t first_parameter, size_t first_begin) {
  const ModuleRoute& route = routes_[static_cast<size_t>(model.part.module)];
  const auto& all = maker.all();
  std::vector<StageBlock> made;
  size_t begin = first_parameter;
  for (size_t next = first_begin; next <= maker.block_begins().size(); ++next) {
    const size_t end = next < maker.block_begins().size() ? maker.block_begins()[next] : all.size();
    StageBlock& block = made.emplace_back();
    block.parameters.assign(all.begin() + static_cast<std::ptrdiff_t>(begin),
                            all.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  model.first_block = blocks_.size();
  const bool is_tied = model.part.has_exit && model.network->is_tied();
  if (is_tied && model.part.has_entry) made.back().borrowed = model.first_block;
  if (!model.part.has_entry) {
    // A head's copy of the embedding, where the embedding is in another stage.
    std::vector<ParameterPtr>& copies = made.front().parameters;
    if (is_tied) made.back().parameters.insert(made.back().parameters.begin(), copies.begin(), copies.end());
    WEFT_CHECK(is_tied || copies.empty(), "a stage without the entry of a module has {} of its parameters",
               copies.size());
    made.erase(made.begin());
  }
  int64_t place = model.part.has_entry ? 0 : model.part.first_layer + 1;
  for (StageBlock& block : made) {
    const bool is_exit = model.part.has_exit && &block == &made.back();
    block.has_backward = trainable.backward_of(route.kind, is_exit ? exit_place : place).runs();
    place = place == 0 ? model.part.first_layer + 1 : place + 1;
  }
  blocks_.insert(blocks_.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
  model.end_block = blocks_.size();
}

bool StageModel::has_divided_rows(const ParameterPtr& parameter) const {
  const auto found = std::find(parameters_.begin(), parameters_.end(), parameter);
  WEFT_CHECK(found != parameters_.end(), "{} is not of stage {}", parameter->name(), stage_);
  return has_divided_rows_[static_cast<size_t>(found - parameters_.begin())];
}

ModuleKind StageModel::module_of(const Parameter& parameter) const {
  for (const PartModel& model : parts_) {
    for (size_t block = model.first_block; block < model.end_block; ++block) {
      for (const ParameterPtr& own : blocks_[block].parameters) {
        if (own.get() == &parameter) return model.kind;
      }
    }
  }
  WEFT_CHECK(false, "{} is in no block of stage {}", parameter.name(), stage_);
}

bool StageModel::has_data(const ModuleRoute& route, const Inputs& inputs) const {
  return route.is_beside ? has_places(route.kind, inputs) : inputs.has_data(route.kind);
}

std::vector<FlowTensor> StageModel::tensors_between(int32_t stage, const Inputs& inputs) const {
  std::vector<FlowTensor> tensors;
  if (stage < 0 || (stage == stage_ && is_last_)) return tensors;
  for (const FlowPart& part :
       flow_after(flow_, stage, [&](size_t module) { return has_data(routes_[module], inputs); })) {
    const bool is_taken = part.kind == FlowKind::kTaken;
    FlowTensor& tensor = tensors.emplace_back();
    tensor.module = part.module;
    tensor.needs_gradient = part.needs_gradient;
    tensor.shared_by = is_taken ? routes_.size() - 1 : part.module;
    const TensorParallel& ranks = *routes_[tensor.shared_by].tensor_parallel;
    int64_t whole = 0;
    if (is_taken) {
      whole = inputs.places(routes_[part.module].kind).size(0);
    } else {
      const RowCounts rows = inputs.row_counts(routes_[part.module].kind);
      whole = part.kind == FlowKind::kOutput ? rows.outside : rows.inside;
    }
    if (is_taken && ranks.divides_rows()) {
      // They lie with their tokens.
      const auto own = std::ssize(rows_taken(routes_[part.module].kind, inputs));
      tensor.shape = {own, part.width};
      tensor.sent = {0, own};
    } else {
      tensor.shape = {ranks.local_rows(whole), part.width};
      tensor.sent = ranks.rows_sent(whole);
    }
  }
  return tensors;
}

at::Tensor StageModel::part_sent(const FlowTensor& tensor, const at::Tensor& x) {
  if (tensor.sent.size() == x.size(0)) return x;
  return x.narrow(0, tensor.sent.begin, tensor.sent.size()).clone();
}

at::Tensor StageModel::joined(const FlowTensor& tensor, const at::Tensor& part) const {
  return routes_[tensor.shared_by].tensor_parallel->join(part, tensor.shape.front());
}

ParameterPtr StageModel::embedding() const {
  for (const PartModel& model : parts_) {
    if (ParameterPtr table = model.network->table()) return table;
  }
  return {};
}

/// All rows that an encoder gave for this rank's share.
at::Tensor StageModel::whole_rows(const ModuleRoute& route, const at::Tensor& x, const Inputs& inputs) const {
  if (!route.tensor_parallel->divides_rows()) return x;
  return route.tensor_parallel->sites(inputs.row_counts(route.kind).outside).gather(x);
}

/// An inline encoder's output as the language model takes it in: all rows for the tokens of this rank's share.
at::Tensor StageModel::media_rows(const ModuleRoute& route, const at::Tensor& x, const Inputs& inputs) const {
  const auto for_tokens = [&](const at::Tensor& rows) { return context_->media_rows(route.kind, rows, inputs); };
  const bool is_spread = route.tensor_parallel->share().num_ranks > 1;
  if (route.output_parts == 1 || !is_spread || !routes_.back().tensor_parallel->divides_rows())
    return for_tokens(whole_rows(route, x, inputs));
  // Each rank goes on with some rows of the parts behind the first, so that their gradients are summands.
  const int64_t width = x.size(1) / route.output_parts;
  const std::vector<at::Tensor> parts = x.split_with_sizes({width, x.size(1) - width}, 1);
  const at::Tensor first = whole_rows(route, parts[0].contiguous(), inputs);
  const at::Tensor others =
      route.tensor_parallel->sites(inputs.row_counts(route.kind).outside).enter(parts[1].contiguous());
  return for_tokens(at::cat({first, others}, 1));
}

bool StageModel::has_entry(ModuleKind module) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const PartModel& part) { return part.kind == module && part.part.has_entry; });
}

bool StageModel::takes_rows(ModuleKind encoder, const Inputs& inputs) const {
  return has_llm_entry() && has_places(encoder, inputs);
}

std::vector<int64_t> StageModel::rows_taken(ModuleKind encoder, const Inputs& inputs) const {
  const at::Tensor places = inputs.places(encoder).cpu();
  const Range own = routes_.back().tensor_parallel->rows_between(inputs.ids.size(0));
  const int64_t* place = places.data_ptr<int64_t>();
  const MediaShare* share = inputs.context ? &inputs.context->media(encoder) : nullptr;
  std::vector<int64_t> taken;
  for (int64_t row = 0; row < places.size(0); ++row) {
    if (place[row] < own.begin || place[row] >= own.end) continue;
    taken.push_back(share != nullptr ? share->needed[static_cast<size_t>(row)] : row);
  }
  return taken;
}

/// Which of an encoder's rows replace tokens that this rank has between blocks of the llm.
at::Tensor StageModel::is_between(ModuleKind encoder, const Inputs& inputs) const {
  const at::Tensor& places = inputs.places(encoder);
  const Range own = routes_.back().tensor_parallel->rows_between(inputs.ids.size(0));
  return places.ge(own.begin).logical_and_(places.lt(own.end));
}

/// And where, among these.
at::Tensor StageModel::places_between(ModuleKind encoder, const Inputs& inputs) const {
  const at::Tensor& places = inputs.places(encoder);
  const TensorParallel& text = *routes_.back().tensor_parallel;
  if (!text.divides_rows()) return places;
  return places.masked_select(is_between(encoder, inputs)) - text.rows_between(inputs.ids.size(0)).begin;
}

/// What encoders gave, where the language model begins: it is used up.
StageModel::TakenIn StageModel::taken_in(size_t module, Flow& flow, const Inputs& inputs) const {
  TakenIn taken;
  const bool divides_rows = routes_.back().tensor_parallel->divides_rows();
  for (size_t other = 0; other < module; ++other) {
    const ModuleRoute& route = routes_[other];
    const bool is_due = has_data(route, inputs);
    WEFT_CHECK(flow[other].defined() == is_due, "an encoder's output is not there when the language model begins");
    if (!is_due) continue;
    // Where rows are divided, only those of this rank's tokens come from beside the pipeline.
    const bool is_own = route.is_beside && divides_rows;
    const at::Tensor rows = route.is_beside ? flow[other] : media_rows(route, flow[other], inputs);
    std::vector<at::Tensor> parts = parts_of_rows(rows, route.output_parts);
    MediaRows& media = taken.media.emplace_back();
    media = {.positions = is_own ? places_between(route.kind, inputs) : inputs.places(route.kind),
             .rows = parts.front(),
             .is_own = is_own};
    flow[other].reset();
    if (parts.size() == 1) continue;
    parts.erase(parts.begin());
    AddedRows& added = taken.added[other];
    added = {.positions = is_own ? media.positions : places_between(route.kind, inputs), .parts = std::move(parts)};
    if (is_own || !divides_rows) continue;
    const at::Tensor own = is_between(route.kind, inputs).nonzero().squeeze(1);
    for (at::Tensor& part : added.parts) part = part.index_select(0, own);
  }
  return taken;
}

/// What came from an earlier stage for layers of the llm here and behind it.
std::map<size_t, AddedRows> StageModel::still_to_add(const PartModel& llm, const Flow& flow,
                                                     const Inputs& inputs) const {
  std::map<size_t, AddedRows> added;
  for (size_t other = 0; other + 1 < routes_.size(); ++other) {
    if (!flow[other].defined()) continue;
    added[other] = {.positions = places_between(routes_[other].kind, inputs),
                    .parts = parts_of_rows(flow[other], flow[other].size(1) / routes_.back().width),
                    .first_layer = llm.part.first_layer};
  }
  return added;
}

/// What an earlier stage gave of a module: rows, and beside them those that its exit will take.
LayerRows StageModel::given_rows(const PartModel& model, const at::Tensor& x) const {
  const int64_t num_parts = x.size(1) / route_of(model).width;
  if (num_parts == 1) return {.last = x};
  std::vector<at::Tensor> parts = parts_of_rows(x, num_parts);
  LayerRows rows{.last = parts.front().contiguous()};
  rows.branches.assign(parts.begin() + 1, parts.end());
  return rows;
}

void StageModel::run_part(const PartModel& model, Flow& flow, const Inputs& inputs, WeightGradients* deferred,
                          const BlockHooks* hooks, GrowingText* text, StageResult& result) const {
  const auto index = static_cast<size_t>(model.part.module);
  const bool is_llm = model.kind == ModuleKind::kLlm;
  at::Tensor& x = flow[index];
  TensorParallel& tensor_parallel = *routes_[index].tensor_parallel;
  const bool is_spread = tensor_parallel.share().num_ranks > 1;
  const RowCounts rows = inputs.row_counts(model.kind);
  const ActivationSites inside = tensor_parallel.sites(rows.inside);
  const std::shared_ptr<const DropoutDraws> draws = inputs.draws_of(model.kind);
  const RunContext context{.deferred = deferred,
                           .sites = is_spread ? &inside : nullptr,
                           .recomputes_logits = model.recomputes_logits,
                           .loss = at::GradMode::is_enabled() ? loss_ : LossSettings{},
                           .dropout = draws.get()};
  size_t block = model.first_block;
  LayerRows carried;
  std::map<size_t, AddedRows> added;
  if (model.part.has_entry) {
    TakenIn taken;
    if (is_llm) taken = taken_in(index, flow, inputs);
    carried.last = run_block(hooks, block++, [&] { return model.network->enter(inputs, taken.media, context); });
    added = std::move(taken.added);
  } else {
    carried = given_rows(model, x);
    if (is_llm) added = still_to_add(model, flow, inputs);
  }
  x = carried.last;
  LayerPass pass = model.network->begin(inputs, type_);
  pass.shared = context_->rows(index, model.kind, inputs);
  if (is_llm && text != nullptr) {
    if (!text->cache) text->cache.emplace(model.network->num_layers(), text->most_tokens);
    pass.cache = &*text->cache;
  }
  // Layers that run again in the backward write into it once more, which nobody reads.
  const auto balance_losses = std::make_shared<std::vector<at::Tensor>>();
  const auto expert_rows = std::make_shared<std::vector<at::Tensor>>();
  // An evaluation has no use for it. Tensor-parallel ranks that route the same rows each add a part of the loss, others
  // that of their rows.
  const int64_t num_alike = experts_over_tp_ ? 1 : tensor_parallel.share().num_ranks;
  const double balance_scale =
      is_llm && at::GradMode::is_enabled() ? balance_scale_ / static_cast<double>(num_alike) : 0;
  const auto layer = [network = model.network, draws, pass, inside, is_spread, deferred, balance_losses, balance_scale,
                      expert_rows, experts = is_llm && experts_ ? &*experts_ : nullptr,
                      balance = is_llm && balance_ ? &*balance_ : nullptr, over_tp = is_llm && experts_over_tp_](
                         int64_t layer_index, const at::Tensor& own, bool recomputes_attention) {
    return network->run_layer(layer_index, own, pass,
                              {.deferred = deferred,
                               .sites = is_spread ? &inside : nullptr,
                               .recomputes_attention = recomputes_attention,
                               .balance_scale = balance_scale,
                               .balance_losses = balance_scale != 0 ? balance_losses.get() : nullptr,
                               .balance = balance,
                               .experts = experts,
                               .experts_over_tp = over_tp,
                               .expert_rows = expert_rows.get(),
                               .dropout = draws.get()});
  };
  const std::vector<int64_t>& branches = routes_[index].branches;
  const auto behind = [&](int64_t layer_index, at::Tensor rows_behind) {
    const int64_t place = model.part.first_layer + layer_index;
    for (const auto& [encoder, media] : added) rows_behind = media.behind(place, rows_behind);
    if (std::find(branches.begin(), branches.end(), place) != branches.end()) carried.branches.push_back(rows_behind);
    return rows_behind;
  };
  carried.last = run_layers(model.recomputes, carried.last, blocks_, layer, behind, hooks, block);
  x = carried.last;
  for (const auto& [encoder, media] : added) flow[encoder] = media.from(model.part.first_layer + model.part.num_layers);
  if (is_llm) result.expert_rows = *expert_rows;
  for (const at::Tensor& loss : *balance_losses) {
    const at::Tensor part = loss.to(at::kDouble) * balance_scale_;
    result.balance_loss = result.balance_loss.defined() ? result.balance_loss + part : part;
  }
  if (!model.part.has_exit) {
    if (carried.branches.empty()) return;
    carried.branches.insert(carried.branches.begin(), x);
    x = at::cat(carried.branches, 1);
    return;
  }
  if (is_llm && text != nullptr) {
    const ActivationSites single = tensor_parallel.sites(1);
    const RunContext one{.sites = is_spread ? &single : nullptr};
    text->logits =
        run_block(hooks, model.end_block - 1, [&] { return model.network->next_logits(carried.last, context, one); });
    result.loss = text->logits.sum();
    x = at::Tensor();
    return;
  }
  const ActivationSites given = tensor_parallel.sites(rows.outside);
  const RunContext outside{.deferred = deferred, .sites = is_spread ? &given : nullptr};
  const at::Tensor left =
      run_block(hooks, model.end_block - 1, [&] { return model.network->leave(carried, inputs, context, outside); });
  x = is_llm ? at::Tensor() : left;
  if (is_llm) result.loss = left;
}

StageResult StageModel::forward(Flow flow, const Inputs& inputs, WeightGradients* deferred, const BlockHooks* hooks,
                                GrowingText* text) const {
  flow.resize(routes_.size());
  StageResult result;
  for (const PartModel& model : parts_) {
    const auto index = static_cast<size_t>(model.part.module);
    if (!has_data(routes_[index], inputs)) {
      for (size_t block = model.first_block; hooks != nullptr && block < model.end_block; ++block) {
        hooks->before_forward(block);
        hooks->after_forward(block);
      }
      continue;
    }
    run_part(model, flow, inputs, deferred, hooks, text, result);
    at::Tensor& x = flow[index];
    if (is_encoder_ && is_last_) x = whole_rows(routes_[index], x, inputs);
    const at::NoGradGuard no_graph;
    const at::Tensor& given = x.defined() ? x : result.loss;
    result.sums.emplace_back(
        model.kind,
        given.detach().sum(c10::typeMetaToScalarType(given.dtype()) == at::kDouble ? at::kDouble : at::kFloat));
  }
  result.flow = std::move(flow);
  return result;
}

}  // namespace weft
