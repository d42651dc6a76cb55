#include "weft/pipeline/training_rank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/unobeyed.h"
#include "weft/meaning/zero_rules.h"
#include "weft/mesh/head_share.h"
#include "weft/models/context_share.h"
#include "weft/models/initialize.h"
#include "weft/optim/clip.h"
#include "weft/optim/owned_pieces.h"
#include "weft/plan/module_mesh.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

at::ScalarType type_of(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return at::kDouble;
    case Precision::kFp32:
      return at::kFloat;
    case Precision::kBf16:
      return at::kBFloat16;
    case Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

/// Experts of a layer; 0 where it is dense.
int64_t num_experts(const Block& layer) {
  for (const Op& op : layer.ops) {
    if (op.name == "moe.router") return std::get<Matmul>(op.shape).out;
  }
  return 0;
}

int64_t num_experts(const Model& model) {
  int64_t most = 0;
  for (const Block& layer : model.modules.back().layer_kinds) most = std::max(most, num_experts(layer));
  return most;
}

/// By stage, how many routers come before; at the end all of them.
std::vector<int64_t> count_routers(const Plan& plan) {
  const Module& llm = plan.model.modules.back();
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  std::vector<int64_t> first(static_cast<size_t>(num_stages(plan)) + 1);
  for (const StagePart& part : parts) {
    if (plan.modules[static_cast<size_t>(part.module)].is_encoder()) continue;
    for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer) {
      const Block& block = llm.layer_kinds[llm.layers[static_cast<size_t>(layer)]];
      first[static_cast<size_t>(part.stage) + 1] += num_experts(block) > 0 ? 1 : 0;
    }
  }
  for (size_t stage = 1; stage < first.size(); ++stage) first[stage] += first[stage - 1];
  return first;
}

/// The elements of a piece in its parameter.
template <typename Visit>
void each_piece(const Parameter& parameter, Visit visit) {
  int64_t begin = 0;
  for (const WeightPiece& piece : parameter.spec.pieces) {
    visit(piece, ElementRange{begin, begin + piece.num_elements()});
    begin += piece.num_elements();
  }
}

std::vector<int64_t> elements_of_blocks(const std::vector<StageBlock>& blocks) {
  std::vector<int64_t> elements;
  for (const StageBlock& block : blocks) {
    int64_t& sum = elements.emplace_back(0);
    for (const ParameterPtr& parameter : block.parameters) sum += parameter->value.numel();
  }
  return elements;
}

/// Fresh weights: every rank draws what it owns, and what it uses beside comes from the ranks that own that.
void draw_owned(StageOptimizer& optimizer, uint64_t seed) {
  for (const OwnedPiece& owned : owned_pieces(optimizer))
    initialize_elements(*owned.piece, owned.parameter->spec.init, seed, owned.elements.begin, owned.state.master);
  optimizer.restore(0);
}

void sum_copies(Group& group, const std::vector<std::pair<ParameterPtr, ElementRange>>& parts) {
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> views;
  for (const auto& [parameter, elements] : parts) {
    if (!parameter->gradient.defined()) continue;  // on all ranks alike: they have the same data
    views.push_back(parameter->gradient.view({-1}).narrow(0, elements.begin, elements.size()));
  }
  if (views.empty()) return;
  const at::Tensor together = at::cat(views);
  group.all_reduce(buffer_of(together), Reduction::kSum).wait();
  int64_t begin = 0;
  for (const at::Tensor& view : views) {
    view.copy_(together.narrow(0, begin, view.size(0)));
    begin += view.size(0);
  }
}

}  // namespace

Result<std::unique_ptr<TrainingRank>> TrainingRank::create(World& world, const Plan& plan,
                                                           const TrainingSettings& settings) {
  if (const std::vector<Violation> violations = find_unobeyed(plan); !violations.empty())
    return to_error(violations, "are not trained");
  const ModulePlan& llm = plan.llm();
  WEFT_TRY(const Mesh mesh, mesh_of(llm));
  WEFT_TRY(const Schedule schedule, schedule_of(plan));
  WEFT_TRY(Schedule lowered, lower_schedule(with_step_end(schedule)));

  std::unique_ptr<TrainingRank> rank(new TrainingRank);
  WEFT_TRY(rank->numbers_, read_numbers(plan.model));
  rank->options_ = at::TensorOptions().dtype(type_of(plan.precision.compute)).device(settings.device);
  rank->num_experts_ = num_experts(plan.model);
  rank->first_router_ = count_routers(plan);
  rank->max_gradient_norm_ = settings.max_gradient_norm;
  rank->everyone_ = world.all();
  rank->vocabulary_ = std::get<Lookup>(plan.model.modules.back().entry.ops.front().shape).entries;
  rank->batch_shape_.llm = {
      .data_parallel = llm.dp, .microbatches = plan.schedule.microbatches, .mbs = plan.schedule.mbs};
  rank->tensor_parallel_.resize(plan.modules.size());
  rank->stage_of_.resize(static_cast<size_t>(lowered.num_stages()));
  Making making{.world = world,
                .plan = plan,
                .settings = settings,
                .text_mesh = mesh,
                .executor = {.lowered = std::move(lowered), .pace = settings.pace}};
  making.executor.stages.resize(rank->stage_of_.size());
  // Ranks make the groups that they have in common in this order.
  if (mesh.contains(world.rank())) {
    if (const auto error = rank->make_text(making)) return *error;
  }
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (plan.modules[module].is_in_pipeline()) continue;
    if (const auto error = rank->make_encoder(making, module)) return *error;
  }
  for (const Encoder& encoder : rank->encoders_)
    making.executor.encoders.push_back({encoder.module, encoder.kind, encoder.runner.get(), encoder.bridge.get()});
  rank->executor_ = std::make_unique<PipelineExecutor>(std::move(making.executor));
  return rank;
}

std::optional<Error> TrainingRank::make_text(Making& making) {
  const Plan& plan = making.plan;
  World& world = making.world;
  const ModulePlan& llm = plan.llm();
  const Mesh& mesh = making.text_mesh;
  const AxisGrid& grid = mesh.grid();
  const int64_t position = mesh.position_of(world.rank());
  const AxisList data_axes = grid.axes_named({"cp", "dp"});
  auto tensor_groups = MeshGroups::create(world, mesh.sub_mesh_around(world.rank(), grid.axes_named({"tp"})));
  if (!tensor_groups) return tensor_groups.error();
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    const ModulePlan& settings = plan.modules[module];
    if (!settings.is_in_pipeline()) continue;
    tensor_parallel_[module] =
        std::make_unique<TensorParallel>(*tensor_groups, settings.sequence_parallel && settings.tp > 1);
  }
  text_ = tensor_parallel_.back().get();
  auto data_parallel = world.group(mesh, data_axes);
  if (!data_parallel) return data_parallel.error();
  auto pipeline = world.group(mesh, grid.axes_named({"pp"}));
  if (!pipeline) return pipeline.error();
  const auto expert_groups = make_expert_groups(world, mesh, llm.ep);
  if (!expert_groups) return expert_groups.error();
  if (*expert_groups) expert_group_ = (*expert_groups)->experts;
  auto context = ContextParallel::create(world, plan, mesh);
  if (!context) return context.error();
  text_context_ = std::make_unique<ContextParallel>(*std::move(context));
  text_data_parallel_rank_ = grid.group_index(position, grid.axes_named({"dp"}));

  PipelineExecutor::Settings& executor = making.executor;
  executor.pipeline = *pipeline;
  executor.row = static_cast<int32_t>(pipeline->rank());
  const std::vector<int32_t> held = stages_of_rank(executor.lowered, *executor.row);
  for (const int32_t index : held) {
    Stage& stage = stages_.emplace_back();
    stage.tensor_parallel = text_;
    stage.model = std::make_unique<StageModel>(
        StageModel::Settings{.plan = plan,
                             .numbers = numbers_,
                             .stage = index,
                             .options = options_,
                             .experts = *expert_groups ? std::optional((*expert_groups)->experts) : std::nullopt,
                             .context = *text_context_,
                             .encoder = {}},
        tensor_parallel_);
    stage_of_[static_cast<size_t>(index)] = &stage;
  }
  tie_embeddings(world, mesh, plan);
  for (Stage& stage : stages_) {
    make_optimizers(making, llm, stage, *data_parallel, *expert_groups);
    find_copies(world, stage);
    make_weights(making, stage);
    executor.stages[static_cast<size_t>(stage.model->stage())] = {stage.model.get(), stage.weights.get()};
  }
  return std::nullopt;
}

std::optional<Error> TrainingRank::make_encoder(Making& making, size_t module) {
  const ModulePlan& settings = making.plan.modules[module];
  World& world = making.world;
  const auto mesh = mesh_of(settings);
  if (!mesh) return mesh.error();
  Encoder& encoder = encoders_.emplace_back();
  encoder.module = module;
  encoder.kind = settings.kind;
  encoder.rows = making.executor.lowered.encoders[encoders_.size() - 1];
  // The schedule takes rows as read at F of stage 0. Where the llm begins later, waiting for them to be read could wait
  // for what comes after.
  if (llm_entry_stage(making.plan) != 0) encoder.rows.live_macro_batches = 0;
  batch_shape_.encoders[settings.kind] = {.data_parallel = settings.dp, .mbs_scale = settings.mbs_scale};
  if (!mesh->contains(world.rank())) return make_bridge(making, *mesh, encoder);

  const AxisGrid& grid = mesh->grid();
  const int64_t position = mesh->position_of(world.rank());
  const AxisList data_axes = grid.axes_named({"cp", "dp"});
  encoder.data_parallel_rank = grid.group_index(position, grid.axes_named({"dp"}));
  const auto tensor_groups = MeshGroups::create(world, mesh->sub_mesh_around(world.rank(), grid.axes_named({"tp"})));
  if (!tensor_groups) return tensor_groups.error();
  tensor_parallel_[module] =
      std::make_unique<TensorParallel>(*tensor_groups, settings.sequence_parallel && settings.tp > 1);
  const auto data_parallel = world.group(*mesh, data_axes);
  if (!data_parallel) return data_parallel.error();
  std::optional<Group> pipeline;
  if (settings.pp > 1) {
    auto group = world.group(*mesh, grid.axes_named({"pp"}));
    if (!group) return group.error();
    pipeline = *std::move(group);
  }
  auto context = ContextParallel::create(world, making.plan, *mesh, module);
  if (!context) return context.error();
  encoder.context = std::make_unique<ContextParallel>(*std::move(context));
  const auto index = static_cast<int32_t>(pipeline ? pipeline->rank() : 0);
  Stage& stage = stages_.emplace_back();
  stage.tensor_parallel = tensor_parallel_[module].get();
  stage.model = std::make_unique<StageModel>(StageModel::Settings{.plan = making.plan,
                                                                  .numbers = numbers_,
                                                                  .stage = index,
                                                                  .options = options_,
                                                                  .experts = {},
                                                                  .context = *encoder.context,
                                                                  .encoder = module},
                                             tensor_parallel_);
  make_optimizers(making, settings, stage, *data_parallel, {});
  find_copies(world, stage);
  make_weights(making, stage);
  if (const auto error = make_bridge(making, *mesh, encoder)) return error;
  encoder.runner = std::make_unique<EncoderRunner>(
      EncoderRunner::Settings{.module = module,
                              .model = stage.model.get(),
                              .weights = stage.weights.get(),
                              .rows = encoder.rows,
                              .pipeline = pipeline,
                              .bridge = stage.model->is_last() ? encoder.bridge.get() : nullptr,
                              .reduces_while_others_run = making.plan.overlap_dp,
                              .encoder = static_cast<int32_t>(encoders_.size()) - 1,
                              .pace = making.settings.pace});
  // Ranks that the llm is not on have rows of their own.
  if (!making.executor.row) making.executor.row = encoder.rows.groups[static_cast<size_t>(index)].front();
  return std::nullopt;
}

std::optional<Error> TrainingRank::make_bridge(Making& making, const Mesh& mesh, Encoder& encoder) {
  const Plan& plan = making.plan;
  const auto at_pipeline_rank = [](const Mesh& whole, int64_t rank, int64_t pipeline_rank) {
    const std::optional<size_t> axis = whole.grid().find("pp");
    return !axis || whole.coordinates_of(rank)[*axis] == pipeline_rank;
  };
  const int64_t text_row = place_of_stage(plan, llm_entry_stage(plan)).rank;
  std::vector<int64_t> ranks, data_parallel_ranks;
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    const bool makes = mesh.contains(rank) && at_pipeline_rank(mesh, rank, plan.modules[encoder.module].pp - 1);
    const bool takes = making.text_mesh.contains(rank) && at_pipeline_rank(making.text_mesh, rank, text_row);
    if (!makes && !takes) continue;
    ranks.push_back(rank);
    data_parallel_ranks.push_back(
        makes ? mesh.grid().group_index(mesh.position_of(rank), mesh.grid().axes_named({"dp"})) : -1);
  }
  if (std::find(ranks.begin(), ranks.end(), making.world.rank()) == ranks.end()) return std::nullopt;
  const std::string name(name_of(encoder.kind));
  const auto rows = making.world.group(name + " rows", ranks);
  if (!rows) return rows.error();
  EncoderBridge::Settings settings{.rows = *rows,
                                   .gradients = {},
                                   .data_parallel_ranks = std::move(data_parallel_ranks),
                                   .shares_rows = plan.modules[encoder.module].cp > 1,
                                   .width = plan.model.find(encoder.kind)->output_width,
                                   .options = options_};
  if (!plan.workload.is_frozen(encoder.kind)) {
    const auto gradients = making.world.group(name + " gradients", ranks);
    if (!gradients) return gradients.error();
    settings.gradients = *gradients;
  }
  encoder.bridge = std::make_unique<EncoderBridge>(std::move(settings));
  return std::nullopt;
}

Result<std::optional<TrainingRank::ExpertGroups>> TrainingRank::make_expert_groups(World& world, const Mesh& mesh,
                                                                                   int64_t ep) {
  if (ep == 1) return std::optional<ExpertGroups>();
  const AxisList axes = mesh.grid().axes_named({"cp", "dp"});
  const std::vector<int64_t> ranks = mesh.group_of(world.rank(), axes);
  const auto position = mesh.grid().group_index(mesh.position_of(world.rank()), axes);
  // Neighbours share out the experts.
  std::vector<int64_t> sharers, copies;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto other = static_cast<int64_t>(i);
    if (other / ep == position / ep) sharers.push_back(ranks[i]);
    if (other % ep == position % ep) copies.push_back(ranks[i]);
  }
  WEFT_TRY(Group experts, world.group("ep", sharers));
  WEFT_TRY(Group same, world.group("same experts", copies));
  return std::optional(ExpertGroups{std::move(experts), std::move(same)});
}

void TrainingRank::tie_embeddings(World& world, const Mesh& mesh, const Plan& plan) {
  const size_t num_stages_here = stage_of_.size();
  // Frozen copies need nothing to stay equal.
  if (!plan.model.has_tied_embeddings || num_stages_here == 1 || plan.workload.is_frozen(ModuleKind::kLlm)) return;
  const int32_t first = llm_entry_stage(plan);
  const auto last = static_cast<int32_t>(num_stages_here) - 1;
  if (first == last) return;
  for (const int32_t stage : {first, last}) {
    if (Stage* here = stage_of_[static_cast<size_t>(stage)]) embeddings_.emplace_back(here, here->model->embedding());
  }
  counts_embedding_ = stage_of_[static_cast<size_t>(first)] != nullptr;
  const int32_t first_row = place_of_stage(plan, first).rank;
  const int32_t last_row = place_of_stage(plan, last).rank;
  if (first_row == last_row || embeddings_.empty()) return;
  const std::vector<int64_t> pipeline = mesh.group_of(world.rank(), mesh.grid().axes_named({"pp"}));
  auto group = world.group("embedding", {pipeline[static_cast<size_t>(std::min(first_row, last_row))],
                                         pipeline[static_cast<size_t>(std::max(first_row, last_row))]});
  WEFT_CHECK(group.ok(), "{}", group.error().message());
  embedding_group_ = *group;
}

bool TrainingRank::is_tied(const ParameterPtr& parameter) const {
  return std::any_of(embeddings_.begin(), embeddings_.end(),
                     [&](const auto& copy) { return copy.second == parameter; });
}

void TrainingRank::make_optimizers(const Making& making, const ModulePlan& module, Stage& stage,
                                   const Group& data_parallel, const std::optional<ExpertGroups>& experts) {
  const Plan& plan = making.plan;
  const OptimizerOptions options{.zero = module.zero,
                                 .keep_gathered = module.zero_keep_gathered,
                                 .buckets_mb = plan.buckets_mb,
                                 .overlap = plan.overlap_dp,
                                 .adamw = making.settings.adamw,
                                 .compute_type = type_of(plan.precision.compute),
                                 .master_type = type_of(plan.precision.master),
                                 .reduce_type = type_of(plan.precision.reduce)};
  const auto make = [&](const std::vector<StageBlock>& blocks, const Group& group) {
    std::vector<StageParameter> parameters;
    const std::vector<int64_t> kinds =
        kinds_of_blocks(elements_of_blocks(blocks), options.zero,
                        options.buckets_mb * 1e6 / static_cast<double>(c10::elementSize(options.reduce_type)));
    for (size_t block = 0; block < blocks.size(); ++block) {
      for (const ParameterPtr& parameter : blocks[block].parameters) {
        // A tied embedding is alone, so that both copies lie in equal buckets.
        parameters.push_back({parameter, is_tied(parameter) ? static_cast<int64_t>(blocks.size()) : kinds[block]});
      }
    }
    OptimizerOptions own = options;
    own.zero = effective_zero(own.zero, group.size());
    return std::make_unique<StageOptimizer>(std::move(parameters), group, own);
  };
  std::vector<StageBlock> shared = stage.model->blocks();
  std::vector<StageBlock> expert_blocks = shared;
  const auto is_expert = [&](const ParameterPtr& parameter) {
    return experts && parameter->spec.pieces.front().is_expert;
  };
  for (StageBlock& block : shared) std::erase_if(block.parameters, is_expert);
  size_t num_experts_here = 0;
  for (StageBlock& block : expert_blocks) {
    std::erase_if(block.parameters, std::not_fn(is_expert));
    num_experts_here += block.parameters.size();
  }
  stage.optimizer = make(shared, data_parallel);
  if (num_experts_here > 0) stage.experts = make(expert_blocks, experts->copies);
  if (!making.settings.seed) return;
  draw_owned(*stage.optimizer, *making.settings.seed);
  if (stage.experts) draw_owned(*stage.experts, *making.settings.seed);
}

void TrainingRank::make_weights(const Making& making, Stage& stage) {
  const auto sum = [&stage](const StageOptimizer& optimizer, size_t block) {
    if (&optimizer == stage.experts.get()) return;  // which tensor parallelism cuts, and never copies
    for (Copies& copies : stage.copies[block]) sum_copies(copies.group, copies.parts);
  };
  std::vector<StageOptimizer*> optimizers = {stage.optimizer.get()};
  if (stage.experts) optimizers.push_back(stage.experts.get());
  stage.weights = std::make_unique<StageWeights>(
      stage.model->blocks(), optimizers, StageWeights::Options{.overlap = making.plan.overlap_dp, .complete = sum});
}

void TrainingRank::find_copies(World& world, Stage& stage) {
  const TensorShare share = stage.tensor_parallel->share();
  stage.copies.resize(stage.model->blocks().size());
  if (share.num_ranks == 1) return;
  const Group tensor = stage.tensor_parallel->group();
  const auto find = [&](const StageModel& model, const std::vector<ParameterPtr>& parameters) {
    std::vector<Copies> found;
    Copies all{.group = tensor, .parts = {}};
    std::vector<std::pair<ParameterPtr, ElementRange>> keys;
    std::optional<HeadCounts> heads;
    for (const ParameterPtr& parameter : parameters) {
      if (!parameter->is_trainable()) continue;
      const bool has_divided_rows = model.has_divided_rows(parameter);
      each_piece(*parameter, [&](const WeightPiece& piece, ElementRange elements) {
        const bool is_whole = piece.cut.unit == CutUnit::kNone;
        if (is_whole && (parameter->spec.sees_divided || has_divided_rows)) {
          all.parts.emplace_back(parameter, elements);
        } else if (!is_whole && copies_of(piece, share).count > 1) {
          keys.emplace_back(parameter, elements);
          heads = piece.cut.heads;
        }
      });
    }
    if (!all.parts.empty()) found.push_back(std::move(all));
    if (keys.empty()) return found;
    if (!same_keys_) {
      // One llm has one number of key heads, and encoders have as many keys as queries.
      const HeadShare mine = share_of_heads(*heads, share.num_ranks, share.rank);
      const auto ranks =
          tensor.ranks().subspan(static_cast<size_t>(share.rank - mine.place), static_cast<size_t>(mine.sharers));
      auto group = world.group("same keys", {ranks.begin(), ranks.end()});
      WEFT_CHECK(group.ok(), "{}", group.error().message());
      same_keys_ = *group;
    }
    found.push_back({.group = *same_keys_, .parts = std::move(keys)});
    return found;
  };
  for (size_t block = 0; block < stage.copies.size(); ++block)
    stage.copies[block] = find(*stage.model, stage.model->blocks()[block].parameters);
}

double TrainingRank::sum_over_ranks(double value) {
  const at::Tensor number = at::tensor(value, at::kDouble);
  everyone_->all_reduce(buffer_of(number), Reduction::kSum).wait();
  return number.item<double>();
}

void TrainingRank::sum_tied_embeddings() {
  const at::NoGradGuard no_graph;
  // Both copies lie alone in equal buckets, so that a rank owns the same elements of both.
  std::vector<at::Tensor> owned;
  for (const auto& [stage, parameter] : embeddings_) owned.push_back(stage->optimizer->reduced_gradients(*parameter));
  if (owned.size() == 2) {
    owned[0].add_(owned[1]);
    owned[1].copy_(owned[0]);
  } else if (embedding_group_) {
    embedding_group_->all_reduce(buffer_of(owned.front()), Reduction::kSum).wait();
  }
}

double TrainingRank::finish_gradients() {
  for (Encoder& encoder : encoders_) {
    if (encoder.runner) encoder.runner->finish_gradients();
  }
  for (Stage& stage : stages_) {
    stage.optimizer->finish_reduce();
    if (stage.experts) stage.experts->finish_reduce();
  }
  sum_tied_embeddings();
  double squares = 0;
  for (const Stage& stage : stages_) {
    const auto once = [&](const Parameter& parameter, const WeightPiece& piece) {
      if (!embeddings_.empty()) {
        const bool is_first = &parameter == embeddings_.front().second.get();
        const bool is_second = &parameter == embeddings_.back().second.get() && !is_first;
        if (is_second || (is_first && !counts_embedding_)) return 0.0;
      }
      return copies_of(piece, stage.tensor_parallel->share()).place == 0 ? 1.0 : 0.0;
    };
    squares += stage.optimizer->local_squared_norm(once);
    if (stage.experts) squares += stage.experts->local_squared_norm(once);
  }
  return std::sqrt(sum_over_ranks(squares));
}

std::optional<int64_t> TrainingRank::data_parallel_rank(ModuleKind module) const {
  for (const Encoder& encoder : encoders_) {
    if (encoder.kind == module) return encoder.data_parallel_rank;
  }
  return text_data_parallel_rank_;
}

std::vector<int64_t> TrainingRank::rows_needed(const Encoder& encoder, const RowNumbers& numbers,
                                               const std::vector<int64_t>& samples, const Inputs& share,
                                               size_t microbatch) const {
  std::vector<int64_t> needed;
  for (const Stage& stage : stages_) {
    if (!stage.model->has_text_entry()) continue;
    const std::vector<int64_t> packed = numbers.rows_of(samples);
    for (const int64_t place : stage.model->rows_taken(encoder.kind, share)) {
      const int64_t row = packed.at(static_cast<size_t>(place));
      const int64_t macro = numbers.macro_of(row);
      WEFT_CHECK(macro >= encoder.rows.first_macro[microbatch] && macro < encoder.rows.end_macro[microbatch],
                 "microbatch {} is scheduled without macro batch {} of {}, of which it has samples", microbatch, macro,
                 encoder.rows.name);
      needed.push_back(row);
    }
  }
  return needed;
}

void TrainingRank::begin_encoders(const StepBatch& batch, const std::vector<Inputs>& microbatches, bool has_gradients) {
  for (Encoder& encoder : encoders_) {
    if (encoder.runner) {
      const auto found = batch.encoders.find(encoder.kind);
      WEFT_CHECK(found != batch.encoders.end(), "a batch without macro batches of {}", encoder.rows.name);
      encoder.shares.clear();
      for (const Inputs& macro : found->second)
        encoder.shares.push_back(encoder.context->share(macro, numbers_).to(options_));
      encoder.runner->begin(encoder.shares);
    }
    if (!encoder.bridge) continue;
    const auto shares = batch.assignment.encoders.find(encoder.kind);
    WEFT_CHECK(shares != batch.assignment.encoders.end(), "no samples are assigned to {}", encoder.rows.name);
    RowNumbers numbers(encoder.kind, shares->second, batch.media);
    std::vector<std::vector<int64_t>> needed;
    for (size_t m = 0; m < microbatches.size(); ++m) {
      const auto& samples = batch.assignment.llm.at(static_cast<size_t>(*text_data_parallel_rank_)).at(m);
      needed.push_back(rows_needed(encoder, numbers, samples, microbatches[m], m));
    }
    std::vector<std::vector<int64_t>> made;
    for (const Inputs& share : encoder.shares) {
      std::vector<int64_t>& own = made.emplace_back();
      if (share.context)
        own = (encoder.kind == ModuleKind::kVision ? share.context->vision : share.context->audio).made;
    }
    encoder.bridge->begin(std::move(numbers), std::move(needed), made, has_gradients);
  }
}

StepReport TrainingRank::step(const StepBatch& batch, int64_t num_targets, double learning_rate) {
  WEFT_CHECK(num_targets > 0, "a step over {} target tokens", num_targets);
  for (const Inputs& inputs : batch.microbatches) WEFT_CHECK(inputs.targets.defined(), "a microbatch without targets");
  release_values();  // which may be whole since they were made, written or read
  for (StageOptimizer* optimizer : optimizers()) optimizer->begin_step();
  const int64_t sent_before = expert_group_ ? expert_group_->traffic().sent : 0;
  StepReport report;
  const auto update = [&] {
    report.gradient_norm = finish_gradients();
    report.loss = sum_of_first(executor_->loss_so_far()) / static_cast<double>(num_targets);
    report.is_updated = std::isfinite(report.gradient_norm) && std::isfinite(report.loss);  // the same on all ranks
    if (!report.is_updated) return;
    const double scale = max_gradient_norm_ > 0 ? clip_factor(max_gradient_norm_, report.gradient_norm) : 1;
    for (StageOptimizer* optimizer : optimizers()) optimizer->update(learning_rate, scale);
  };
  const std::vector<Inputs> microbatches = share_out(batch);
  begin_encoders(batch, microbatches, /*has_gradients=*/true);
  StepOutput output = executor_->run(microbatches, 1 / static_cast<double>(num_targets), update);
  for (Encoder& encoder : encoders_) encoder.shares.clear();
  if (num_experts_ > 0) {
    report.balance_loss = sum_of_first(output.balance_loss);
    report.experts = sum_expert_rows(output, expert_group_ ? expert_group_->traffic().sent - sent_before : 0);
  }
  report.waited_ms = output.waited_ms;
  if (!report.is_updated) report.not_finite = find_not_finite(output);
  report.expert_rows = std::move(output.expert_rows);
  report.events = std::move(output.events);
  report.memory = std::move(output.memory);
  return report;
}

double TrainingRank::evaluate(const StepBatch& batch) {
  release_values();
  const std::vector<Inputs> microbatches = share_out(batch);
  begin_encoders(batch, microbatches, /*has_gradients=*/false);
  const StepOutput output = executor_->evaluate(microbatches);
  for (Encoder& encoder : encoders_) encoder.shares.clear();
  return sum_of_first(output.loss_sum);
}

std::vector<Inputs> TrainingRank::share_out(const StepBatch& batch) const {
  std::vector<Inputs> shares;
  for (const Inputs& whole : batch.microbatches)
    shares.push_back(text_context_->share(whole, numbers_).to(options_));  // so that others' pixels need not be there
  return shares;
}

double TrainingRank::sum_of_first(const at::Tensor& number) {
  // Of tensor-parallel ranks, which all know it, the first tells.
  return sum_over_ranks(number.defined() && text_ != nullptr && text_->share().rank == 0 ? number.item<double>() : 0);
}

ExpertLoad TrainingRank::sum_expert_rows(const StepOutput& output, int64_t moved_bytes) {
  const int64_t num_routers = first_router_.back();
  const at::Tensor counts = at::zeros({num_routers * num_experts_ + 1}, at::kLong);
  int64_t* values = counts.data_ptr<int64_t>();
  // Tensor-parallel ranks route the same rows.
  for (const auto& [stage, routers] : output.expert_rows) {
    if (text_->share().rank != 0) break;
    int64_t* next = values + first_router_[static_cast<size_t>(stage)] * num_experts_;
    for (const std::vector<int64_t>& rows : routers) next = std::copy(rows.begin(), rows.end(), next);
  }
  values[num_routers * num_experts_] = moved_bytes;
  everyone_->all_reduce(buffer_of(counts), Reduction::kSum).wait();
  ExpertLoad load{.rows = std::vector<int64_t>(static_cast<size_t>(num_experts_)),
                  .moved_bytes = values[num_routers * num_experts_]};
  for (int64_t router = 0; router < num_routers; ++router) {
    const int64_t* rows = values + router * num_experts_;
    int64_t all = 0, most = 0;
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      load.rows[static_cast<size_t>(expert)] += rows[expert];
      all += rows[expert];
      most = std::max(most, rows[expert]);
    }
    if (all > 0)
      load.imbalance = std::max(load.imbalance, static_cast<double>(most * num_experts_) / static_cast<double>(all));
  }
  return load;
}

std::string TrainingRank::find_not_finite(const StepOutput& output) {
  // In the order in which data flows: what is not finite makes everything behind it so.
  constexpr std::array kOrder = {ModuleKind::kVision, ModuleKind::kAudio, ModuleKind::kLlm};
  for (const ModuleKind kind : kOrder) {
    const auto found = output.sums.find(kind);
    if (!std::isfinite(sum_over_ranks(found == output.sums.end() ? 0 : found->second.item<double>())))
      return fmt::format("what the {} module computes is not finite", name_of(kind));
  }
  // And gradients flow back.
  for (auto kind = kOrder.rbegin(); kind != kOrder.rend(); ++kind) {
    double squares = 0;
    for (const Stage& stage : stages_) {
      const auto is_of_kind = [&](const Parameter& parameter, const WeightPiece&) {
        return stage.model->module_of(parameter) == *kind ? 1.0 : 0.0;
      };
      squares += stage.optimizer->local_squared_norm(is_of_kind);
      if (stage.experts) squares += stage.experts->local_squared_norm(is_of_kind);
    }
    if (!std::isfinite(sum_over_ranks(squares)))
      return fmt::format("the gradient of the {} module is not finite", name_of(*kind));
  }
  return "the sum over all modules is not finite";
}

std::vector<ParameterPtr> TrainingRank::parameters() const {
  std::vector<ParameterPtr> all;
  for (const Stage& stage : stages_) {
    all.insert(all.end(), stage.model->parameters().begin(), stage.model->parameters().end());
  }
  return all;
}

std::vector<StageOptimizer*> TrainingRank::optimizers() const {
  std::vector<StageOptimizer*> all;
  for (const Stage& stage : stages_) all.push_back(stage.optimizer.get());
  for (const Stage& stage : stages_) {
    if (stage.experts) all.push_back(stage.experts.get());
  }
  return all;
}

void TrainingRank::adopt_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->adopt_values();
}

void TrainingRank::release_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->release_values();
}

std::vector<HeldElements> TrainingRank::peak_elements() const {
  std::vector<HeldElements> peaks;
  for (const Stage& stage : stages_) {
    HeldElements& peak = peaks.emplace_back(stage.optimizer->peak_elements());
    if (!stage.experts) continue;
    const HeldElements experts = stage.experts->peak_elements();
    peak.values += experts.values;
    peak.gradients += experts.gradients;
    peak.states += experts.states;
  }
  return peaks;
}

void TrainingRank::gather_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->gather_values();
}

}  // namespace weft
